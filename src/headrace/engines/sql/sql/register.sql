-- Store a new worker. From $1 on: sql.workers.COLUMNS of a new one
INSERT INTO {schema}.workers ({worker_new}) VALUES ({worker_values}) ON CONFLICT (id) DO NOTHING
