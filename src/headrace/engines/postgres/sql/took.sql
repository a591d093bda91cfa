-- The places of those that took.
SELECT coalesce(json_agg(place), '[]')::text FROM {changed}
