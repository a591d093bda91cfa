-- Store an entry, unless it is stored already. ?1 to ?7: seq, kind, attempt, number, at, name, data
INSERT INTO entries (seq, kind, attempt, number, at, name, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT DO NOTHING
