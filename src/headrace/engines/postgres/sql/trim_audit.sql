-- Forget the oldest actions on settings. $1 how many are kept
DELETE FROM {schema}.audit WHERE id <= (SELECT max(id) FROM {schema}.audit) - $1::bigint
