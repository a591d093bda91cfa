-- Make a profile, or mark it as live again. $1: [queue, task, what it requires, base or null, customer or null]
INSERT INTO profiles (task, requires, live, base, customer) VALUES ($1 ->> 1, $1 ->> 2, 1, $1 ->> 3, $1 ->> 4)
ON CONFLICT (task, requires) DO UPDATE SET live = 1, base = excluded.base RETURNING id
