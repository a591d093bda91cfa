-- Workers that are gone, the last to go first, below a moment and an id: $1, $2. $3 how many
{gone_columns.sql}
WHERE (gone_at, id) < ($1, $2) ORDER BY gone_at DESC, id DESC LIMIT $3 + 0
