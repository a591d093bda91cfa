-- Those whose lock nobody holds; what is shared to find out is let go of at once. $1 workers, $2 the number of each
SELECT id FROM unnest($1::uuid[], $2::bigint[]) AS t (id, number) WHERE pg_try_advisory_xact_lock_shared(number)
