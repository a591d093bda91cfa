-- The reply to a beat: cancels, jobs that it should have named, profiles_rev, settings_rev.
SELECT
  (SELECT json_group_array(hex(id)) FROM (
     SELECT id FROM jobs WHERE worker = ?1 AND stage = 3
       AND cancel_requested_at IS NOT NULL
     ORDER BY seq)),
  (SELECT '[' || coalesce(group_concat(doc, ','), '') || ']' FROM (
     SELECT r.doc AS doc FROM jobs j CROSS JOIN record r ON r.seq = j.seq
     WHERE j.worker = ?1 AND j.stage = 3 AND j.assigned_at <= ?2
       AND j.id NOT IN (SELECT unhex(value, '-') FROM jsonb_each(?3))
     ORDER BY j.seq)),
  profiles_rev, settings_rev
FROM books
