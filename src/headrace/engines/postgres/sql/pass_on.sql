-- Leave a note of cancel for the children of these jobs, which had ended before their own parent was cancelled. $1
-- order numbers
INSERT INTO {schema}.notes (kind, seq, batch)
SELECT 'c', t.seq, (SELECT j.id FROM {schema}.jobs j WHERE j.seq = t.seq) FROM unnest($1::text::bigint[]) AS t (seq)
