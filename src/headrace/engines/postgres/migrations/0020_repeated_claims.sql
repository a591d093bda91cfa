-- Whether a worker holds jobs that this request gave it. Waits for a claim under the same request that is under way, and
-- then looks with a snapshot of its own: that of the statement which calls it may be older than the end of that claim.
CREATE FUNCTION {schema}.is_repeat(of_worker uuid, request bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(uuid_hash_extended(of_worker, request));
  RETURN EXISTS (SELECT 1 FROM {schema}.jobs WHERE stage = 3 AND worker = of_worker AND claim = request);
END $$;
