-- A claim and an end each add an entry for their job to this index. Pages that inserts had filled would be searched for
-- dead entries every time, and split. Applies to new pages, and locks nobody out.
ALTER INDEX {schema}.jobs_pkey SET (fillfactor = 50);
