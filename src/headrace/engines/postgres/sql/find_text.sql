-- Jobs in which a text, in lower case, may be found. Plain ASCII is searched here. For other texts lower() may not be
-- enough, so the caller tests each job again.
(
  j.error IS NOT NULL
  OR position(?::text IN b.id::text) > 0
  OR octet_length(b.payload) <> length(b.payload) OR position(?::text IN lower(b.payload)) > 0
  OR j.subqueue = ANY (ARRAY(
    SELECT l.id FROM {schema}.subqueues l JOIN {schema}.profiles p ON p.id = l.profile
    WHERE octet_length(p.task) <> length(p.task) OR position(?::text IN lower(p.task)) > 0))
)
