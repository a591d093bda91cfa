-- Give new jobs a retention of their own. {"keep": {status: microseconds, …}, "seqs": [order number, …]}
WITH kept AS (
  UPDATE {schema}.jobs SET keep = ($1::text::json ->> 'keep')
  WHERE seq = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text($1::text::json -> 'seqs')))
  RETURNING 1
)
SELECT count(*)::text FROM kept
