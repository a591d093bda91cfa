-- The settings of queues, and what claims read of them, side by side.
SELECT coalesce(q.name, substr(s.key, 7)), s.value, q.priority, q.paused
FROM (SELECT key, value FROM {schema}.settings WHERE substr(key, 1, 6) = 'queue:') s
  FULL JOIN {schema}.queues q ON 'queue:' || q.name = s.key
