-- One at a time from here on: what is read after this is what the others have left.
SELECT 1 FROM {schema}.books FOR UPDATE
