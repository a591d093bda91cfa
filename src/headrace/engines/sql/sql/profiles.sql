-- Every live profile, with the rev; not those of the subqueues of customers, which have a base.
SELECT b.profiles_rev, p.id, p.task, p.requires
FROM {schema}.books b LEFT JOIN {schema}.profiles p ON p.live AND p.base IS NULL
ORDER BY p.id
