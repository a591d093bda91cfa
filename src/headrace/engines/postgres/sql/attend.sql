-- Hold a lock for as long as this session lives. $1 its number, which is unique
SELECT pg_advisory_lock($1), pg_backend_pid() AS pid,
  (SELECT concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()), oid) FROM pg_database WHERE datname = current_database())
    AS server
