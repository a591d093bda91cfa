-- Forget the dead workers that no job names.
DELETE FROM {schema}.workers AS w
WHERE NOT w.alive AND NOT EXISTS (SELECT 1 FROM {schema}.jobs j WHERE j.stage = 3 AND j.worker = w.id)
