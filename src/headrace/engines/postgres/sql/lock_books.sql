-- Only one transaction at a time continues from here, and then reads what the earlier ones have written.
SELECT 1 FROM {schema}.books FOR UPDATE
