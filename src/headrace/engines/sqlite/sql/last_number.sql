-- The highest order number that was given.
SELECT {last_number}
