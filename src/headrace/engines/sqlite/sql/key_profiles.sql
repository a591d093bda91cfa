-- The keys that set for how many pairs of task and requirements their customers may have live jobs: [document, …]
SELECT json_group_array(value) FROM settings
WHERE key >= 'key:' AND key < 'key;' AND value LIKE '%"profiles":%' AND value NOT LIKE '%"profiles":null%'
