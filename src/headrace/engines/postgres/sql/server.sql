-- Which run of which server this is, and which of its databases: advisory locks belong to a database.
SELECT concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()), oid) FROM pg_database WHERE datname = current_database()
