-- Lock the stakes of a customer that no insert uses just now. $1 the customer → subqueue
SELECT subqueue FROM {schema}.stakes WHERE customer = $1 FOR UPDATE SKIP LOCKED
