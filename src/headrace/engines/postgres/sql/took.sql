-- The indexes of the changes that were applied.
SELECT coalesce(json_agg(place), '[]')::text FROM {changed}
