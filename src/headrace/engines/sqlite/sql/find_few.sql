-- Whether the candidates are so few that sorting them costs nothing.
SELECT count(*) < 5000 FROM (SELECT 1 FROM source LIMIT 5000)
