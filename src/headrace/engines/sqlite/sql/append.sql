-- Store an entry, unless it is stored already. $1 order number of the job, from $2 on: sql.entries.COLUMNS
INSERT INTO {schema}.entries (seq, {entry}) VALUES ($1, {entry_parameters}) ON CONFLICT DO NOTHING
