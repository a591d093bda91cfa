-- Apply decided changes, each if the job is still at its rev, in one statement.
-- rows: [[columns.CHANGE], …]
-- reports (of progress): [[columns.REPORT], …]
CREATE TEMP TABLE missed (row INTEGER, report INTEGER);
CREATE TEMP VIEW turn AS SELECT NULL AS rows, NULL AS reports;
CREATE TEMP VIEW turned AS
SELECT NULL AS place, {change_nulls};

CREATE TEMP TRIGGER turning INSTEAD OF INSERT ON turn BEGIN
  DELETE FROM missed;
  INSERT INTO turned
  SELECT key, {change_values} FROM jsonb_each(new.rows);
  INSERT INTO missed (report)
  SELECT e.key FROM jsonb_each(new.reports) e LEFT JOIN jobs j ON j.seq = {report_seq} WHERE j.rev IS NOT {report_rev_before};
  UPDATE jobs SET {report_sets}
  FROM jsonb_each(new.reports) e WHERE jobs.seq = {report_seq} AND jobs.rev = {report_rev_before};
END;

CREATE TEMP TRIGGER turning_one INSTEAD OF INSERT ON turned BEGIN
  INSERT INTO missed (row)
  SELECT new.place WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE seq = new.seq AND rev = new.rev_before);
  SELECT raise(IGNORE) WHERE changes() = 1;
{apply_row}
END;
-- ask
INSERT INTO turn VALUES (?1, ?2) RETURNING (SELECT json_group_array(row) FROM missed WHERE row IS NOT NULL),
  (SELECT json_group_array(report) FROM missed WHERE report IS NOT NULL),
  -- Those of the jobs with a noted end are among the newest notes. ?3 how many rows; bare, it would have this compiled
  -- again whenever it is bound.
  (SELECT json_group_array(seq) FROM (SELECT seq, kind FROM notes ORDER BY id DESC LIMIT ?3 + 0) WHERE kind = 'ended')
