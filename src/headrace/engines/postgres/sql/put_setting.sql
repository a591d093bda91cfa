-- Write a setting if it is still at its rev, under the lock of the table books, which is read again after the wait for
-- it. $1 key, $2 value, $3 expected rev, $4 queue or null, $5 priority, $6 paused, $7 the action
WITH books AS (
  -- One counter for all settings: so a key never gets the same rev twice, even after it was deleted.
  UPDATE {schema}.books SET settings_rev = settings_rev + 1
  WHERE coalesce((SELECT rev FROM {schema}.settings WHERE key = $1), 0) = $3
  RETURNING settings_rev
),
gone AS (
  DELETE FROM {schema}.settings WHERE key = $1 AND $2::text IS NULL AND EXISTS (SELECT 1 FROM books)
),
written AS (
  INSERT INTO {schema}.settings (key, value, rev) SELECT $1, $2, settings_rev FROM books WHERE $2::text IS NOT NULL
  ON CONFLICT (key) DO UPDATE SET value = excluded.value, rev = excluded.rev
),
ruled AS (
  INSERT INTO {schema}.queues (name, priority, paused)
  SELECT $4, $5::integer, $6::boolean FROM books WHERE $4::text IS NOT NULL
  ON CONFLICT (name) DO UPDATE SET priority = excluded.priority, paused = excluded.paused
),
audited AS (
  INSERT INTO {schema}.audit (key, data) SELECT $1, $7 FROM books WHERE $7::text IS NOT NULL
)
SELECT settings_rev, (SELECT value FROM {schema}.settings WHERE key = $1) FROM books
