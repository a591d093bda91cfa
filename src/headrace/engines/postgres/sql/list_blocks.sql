-- Blocks of new jobs, for engines/sql/search/finder.py: "runs" has order numbers, subqueues and spans of time.
listed AS (INSERT INTO {schema}.subqueue_blocks (subqueue, block) SELECT DISTINCT subqueue, seq >> 10 FROM runs),
timed AS (
  INSERT INTO {schema}.time_blocks (block, bucket)
  SELECT DISTINCT r.seq >> 13, r.bucket FROM runs r
  WHERE (SELECT 1 FROM {schema}.time_blocks t WHERE t.block = r.seq >> 13 AND t.bucket = r.bucket LIMIT 1) IS NULL
),
