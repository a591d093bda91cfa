-- Of the candidates, those that match as seen at a moment, newest first.
-- ?2 how many, ?3 the moment, ?4 statuses, ?5 task, ?6 queue, ?7 the other labels, ?14 text, in lower case, ?15 whether only suspects
SELECT '[' || coalesce(group_concat(doc, ','), '') || ']' FROM (
  SELECT (SELECT doc FROM record WHERE seq = j.seq) AS doc
  FROM source s
    CROSS JOIN jobs j ON j.seq = s.seq
    CROSS JOIN lines l ON l.id = j.line
    CROSS JOIN profiles p ON p.id = l.profile
  WHERE (?4 IS NULL OR iif(j.stage = 1 AND j.available_at <= ?3, 'queued', j.status)
      IN (SELECT value FROM json_each(?4)))
    AND (?5 IS NULL OR p.task = ?5)
    AND (?6 IS NULL OR l.queue = ?6)
    AND (?7 IS NULL OR NOT EXISTS (
      SELECT 1 FROM json_each(?7) a WHERE NOT EXISTS (SELECT 1 FROM labels WHERE seq = j.seq AND label = a.value)))
    -- What has completed is not suspect.
    AND (NOT ?15 OR (j.stage <> 4 AND {suspect}))
    AND (?14 IS NULL OR (
      -- What is plain ASCII is searched here; for the rest lower() knows too little. CASE looks no further than it must.
      SELECT CASE
        WHEN instr(lower(substr(hex(j.id), 1, 8) || '-' || substr(hex(j.id), 9, 4) || '-' || substr(hex(j.id), 13, 4)
          || '-' || substr(hex(j.id), 17, 4) || '-' || substr(hex(j.id), 21)), ?14) THEN 1
        WHEN iif(octet_length(p.task) = length(p.task), instr(lower(p.task), ?14), mentions(p.task, ?14)) THEN 1
        WHEN iif(octet_length(b.payload) = length(b.payload), instr(lower(b.payload), ?14), mentions(b.payload, ?14))
          THEN 1
        WHEN e.error IS NULL THEN 0
        ELSE mentions_error(e.error, ?14) END
      FROM bodies b LEFT JOIN ends e ON e.seq = b.seq WHERE b.seq = j.seq))
  ORDER BY s.seq DESC
  LIMIT ?2 + 0
)
