-- The keys that set for how many pairs of task and requirements their customers may have live jobs → document
SELECT value FROM {schema}.settings
WHERE key LIKE 'key:%' AND value LIKE '%"profiles":%' AND value NOT LIKE '%"profiles":null%'
