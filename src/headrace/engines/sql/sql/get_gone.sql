-- One worker that is gone. $1 its id
{gone_columns.sql}
WHERE id = $1
