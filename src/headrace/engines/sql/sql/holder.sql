-- The holder of a duty now: core.lifecycle.duty.holder_of. $1 name, $2 now
SELECT holder FROM {schema}.leases WHERE name = $1 AND until > $2 AND holder IS NOT NULL
