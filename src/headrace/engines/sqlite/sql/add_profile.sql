-- Make a profile, or mark it as live again. $1: [queue, task, requirements]
INSERT INTO profiles (task, requires, live) VALUES ($1 ->> 1, $1 ->> 2, 1)
ON CONFLICT (task, requires) DO UPDATE SET live = 1 RETURNING id
