-- Only one transaction at a time goes on from here, and what it reads next is what the earlier ones have written.
SELECT 1 FROM {schema}.books FOR UPDATE
