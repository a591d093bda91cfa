-- Whether a text, in lower case, is found in a job. Plain ASCII is searched here; for other texts lower() is not
-- enough. CASE reads no further than it must.
(SELECT CASE
    WHEN instr(lower(substr(hex(j.id), 1, 8) || '-' || substr(hex(j.id), 9, 4) || '-' || substr(hex(j.id), 13, 4)
      || '-' || substr(hex(j.id), 17, 4) || '-' || substr(hex(j.id), 21)), f.text) THEN 1
    WHEN iif(octet_length(p.task) = length(p.task), instr(lower(p.task), f.text), mentions(p.task, f.text)) THEN 1
    WHEN iif(octet_length(b.payload) = length(b.payload), instr(lower(b.payload), f.text), mentions(b.payload, f.text))
      THEN 1
    WHEN e.error IS NULL THEN 0
    ELSE mentions_error(e.error, f.text) END
  FROM (SELECT ? AS text) f CROSS JOIN bodies b CROSS JOIN subqueues l ON l.id = j.subqueue
    CROSS JOIN profiles p ON p.id = l.profile
    LEFT JOIN ends e ON e.seq = b.seq
  WHERE b.seq = j.seq)
