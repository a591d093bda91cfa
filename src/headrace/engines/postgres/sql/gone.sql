-- Workers with a free lock; the shared lock of this check is released at once. $1 workers, $2 the number of each
SELECT id FROM unnest($1::uuid[], $2::bigint[]) AS t (id, number) WHERE pg_try_advisory_xact_lock_shared(number)
