-- Every live profile, with the rev.
SELECT b.profiles_rev, p.id, p.task, p.requires
FROM {schema}.books b LEFT JOIN {schema}.profiles p ON p.live
ORDER BY p.id
