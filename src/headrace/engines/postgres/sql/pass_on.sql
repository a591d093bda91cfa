-- Note for the children of jobs that had ended before their parent was cancelled that it was. $1 order numbers
INSERT INTO {schema}.notes (kind, seq, batch)
SELECT 'c', t.seq, (SELECT j.id FROM {schema}.jobs j WHERE j.seq = t.seq) FROM unnest($1::text::bigint[]) AS t (seq)
