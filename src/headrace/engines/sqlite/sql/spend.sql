-- Store what was used of a rate. ?1 name, ?2 data, ?3 until
INSERT OR REPLACE INTO spent (name, data, until) VALUES (?1, ?2, ?3)
