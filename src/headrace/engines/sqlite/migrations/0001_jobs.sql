-- Times are microseconds since 1970 in UTC. Ids are the 16 bytes of a UUID. Texts named in brackets are JSON.

-- What is counted and numbered once for the whole store; one row.
CREATE TABLE books (
  last_seq     INTEGER NOT NULL,  -- the highest order number given; never given twice
  accepted     INTEGER NOT NULL,
  pruned       INTEGER NOT NULL,
  profiles_rev INTEGER NOT NULL,
  settings_rev INTEGER NOT NULL,
  lines_rev    INTEGER NOT NULL,  -- grows when a line is added or removed
  collected    INTEGER NOT NULL   -- grows when lines are removed: sessions forget what they interned
) STRICT;
INSERT INTO books VALUES (0, 0, 0, 0, 0, 0, 0);

CREATE TABLE profiles (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  task     TEXT NOT NULL,
  requires TEXT NOT NULL,     -- {JSON}, keys sorted
  live     INTEGER NOT NULL,  -- 0: no live job needs it; it waits for an ended one to come back or to be pruned
  UNIQUE (task, requires)
) STRICT;

-- A line is where jobs stand that are alike to every worker: one queue, one profile.
CREATE TABLE lines (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  queue   TEXT NOT NULL,
  profile INTEGER NOT NULL,
  UNIQUE (queue, profile)
) STRICT;
CREATE INDEX lines_of_profile ON lines (profile);

-- The hot part: narrow, and without what only people read.
CREATE TABLE jobs (
  seq                 INTEGER PRIMARY KEY,
  id                  BLOB NOT NULL UNIQUE,
  line                INTEGER NOT NULL,
  status              TEXT NOT NULL,
  stage               INTEGER NOT NULL,  -- what its status comes to for the indexes: 0 not in line yet, 1 deferred,
                                         -- 2 queued, -1 queued with a key, 3 held, 4 completed, 5 failed or cancelled
  tied                INTEGER NOT NULL DEFAULT 0,  -- 1: another job was stored to wait for it
  rank                INTEGER NOT NULL,  -- the priority, negated: smaller is claimed first
  arrived_at          INTEGER NOT NULL,
  available_at        INTEGER NOT NULL,
  updated_at          INTEGER NOT NULL,
  rev                 INTEGER NOT NULL,
  epoch               INTEGER NOT NULL,
  unstarted_losses    INTEGER NOT NULL,
  unnamed             INTEGER NOT NULL,  -- successive beats of its worker that did not name it
  worker              BLOB,
  claim               INTEGER,
  act_by              INTEGER,
  assigned_at         INTEGER,
  accepted_at         INTEGER,
  finished_at         INTEGER,
  cancel_requested_at INTEGER,
  progress            TEXT,              -- {JSON}
  state               TEXT,              -- [JSON] of what no statement looks at (rows.State); null: as submitted
  held_key            TEXT,              -- [task, dedup key] while the job holds it
  turn_key            TEXT,              -- the concurrency key: those of one task take turns
  change              INTEGER            -- the id of the last change: a repeat is recognised by it
) STRICT;
CREATE INDEX ready ON jobs (line, rank, arrived_at, seq) WHERE stage = 2;
CREATE INDEX turns ON jobs (line, turn_key, rank, arrived_at, seq) WHERE stage = -1;
CREATE INDEX due ON jobs (available_at, line, status, arrived_at) WHERE stage = 1;
CREATE INDEX parked ON jobs (line, status, arrived_at) WHERE stage = 0;
CREATE INDEX held ON jobs (worker, claim) WHERE stage = 3;
CREATE INDEX expiring ON jobs (act_by)
  WHERE act_by IS NOT NULL AND stage < 3;
CREATE INDEX finished ON jobs (status, finished_at, line) WHERE stage >= 4;
CREATE INDEX unlucky ON jobs (status) WHERE stage = 5;
CREATE UNIQUE INDEX keys ON jobs (held_key) WHERE held_key IS NOT NULL;

CREATE TABLE bodies (
  seq     INTEGER PRIMARY KEY,
  payload TEXT NOT NULL,  -- {JSON}, as submitted
  spec    TEXT NOT NULL   -- {JSON}
) STRICT;

CREATE TABLE ends (
  seq    INTEGER PRIMARY KEY,
  result TEXT,            -- {JSON}
  error  TEXT             -- {JSON}
) STRICT;

CREATE TABLE attempts (
  seq    INTEGER NOT NULL,
  number INTEGER NOT NULL,
  data   TEXT NOT NULL,   -- [JSON], rows.Past
  PRIMARY KEY (seq, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
  id   INTEGER PRIMARY KEY,
  seq  INTEGER NOT NULL,
  data TEXT NOT NULL      -- {JSON}
) STRICT;
CREATE INDEX events_of_job ON events (seq);

-- What jobs are found by beside line and status: 't' + a tag, 's' + the schedule, 'p', 'r' and 'b' + the id of the
-- parent, the root and the batch.
CREATE TABLE labels (
  seq   INTEGER NOT NULL,
  label TEXT NOT NULL,
  PRIMARY KEY (seq, label)
) STRICT, WITHOUT ROWID;
CREATE INDEX labelled ON labels (label, seq);

-- Whom a job was stored to wait for; kept as long as the job itself.
CREATE TABLE waits (
  child  INTEGER NOT NULL,
  parent INTEGER NOT NULL,
  PRIMARY KEY (child, parent)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX waits_for ON waits (parent, child);

-- What other jobs are still to be told of a job.
CREATE TABLE notes (
  id     INTEGER PRIMARY KEY,
  kind   TEXT NOT NULL,     -- core.family.Note
  seq    INTEGER NOT NULL,
  label  TEXT,              -- what those are labelled with that are told; null: those that wait, or the job itself
  cursor INTEGER NOT NULL   -- the last job that was told
) STRICT;

CREATE TABLE batches (
  id           BLOB PRIMARY KEY,
  created_at   INTEGER NOT NULL,
  touched_at   INTEGER NOT NULL,
  sealed       INTEGER NOT NULL,
  abandoned    INTEGER NOT NULL,
  total        INTEGER NOT NULL,
  completed    INTEGER NOT NULL,
  failed       INTEGER NOT NULL,
  cancelled    INTEGER NOT NULL,
  ended_at     INTEGER,
  cancelled_at INTEGER,
  cancelled_by TEXT,
  settled      INTEGER NOT NULL,
  calls        TEXT NOT NULL   -- [JSON] of what is submitted at its end: on_complete, on_failure
) STRICT;
CREATE INDEX batches_open ON batches (touched_at) WHERE NOT sealed;
CREATE INDEX batches_over ON batches (created_at)
  WHERE sealed AND NOT settled AND total <= completed + failed + cancelled;
CREATE INDEX batches_made ON batches (created_at, id);
CREATE INDEX batches_settled ON batches (coalesce(ended_at, 0)) WHERE settled;

-- No index but the key: a beat touches nothing else.
CREATE TABLE workers (
  id      BLOB PRIMARY KEY,
  info    TEXT NOT NULL,  -- {JSON}
  beat    TEXT NOT NULL,  -- {JSON}
  beats   INTEGER NOT NULL,
  beat_at INTEGER NOT NULL,
  alive   INTEGER NOT NULL
) STRICT;

CREATE TABLE settings (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL,    -- {JSON}
  rev   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The settings queue:NAME, as claims read them; written with them.
CREATE TABLE queues (
  name     TEXT PRIMARY KEY,
  priority INTEGER NOT NULL,
  paused   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What was used of rates: a name is a JSON array.
CREATE TABLE spent (
  name  TEXT PRIMARY KEY,
  data  TEXT NOT NULL,     -- [JSON], core.rate.Spent
  until INTEGER NOT NULL   -- from when on it says nothing
) STRICT, WITHOUT ROWID;
CREATE INDEX spent_until ON spent (until);

-- The concurrency keys of a task: when each last had its turn, and where its first job stands in each line. Claims read
-- as many as they have use for, in their order, however many there are.
CREATE TABLE heads (
  task       TEXT NOT NULL,
  key        TEXT NOT NULL,
  line       INTEGER NOT NULL,
  last       INTEGER NOT NULL,  -- 0: never, as far as is remembered; the same in all lines of the task
  rank       INTEGER,           -- these three are those of the job; null: none of the key is in this line
  arrived_at INTEGER,
  seq        INTEGER,
  at         INTEGER AS (max(arrived_at, last)) VIRTUAL,
  PRIMARY KEY (task, key, line)
) STRICT, WITHOUT ROWID;
CREATE INDEX heads_in_line ON heads (line, rank, at, seq) WHERE rank IS NOT NULL;

-- Whoever writes jobs: a new one may be the first of its key now.
CREATE TRIGGER heads_of_new AFTER INSERT ON jobs WHEN new.stage = -1 BEGIN
  INSERT INTO heads (task, key, line, last, rank, arrived_at, seq)
  SELECT p.task, new.turn_key, new.line,
    coalesce((SELECT max(last) FROM heads WHERE task = p.task AND key = new.turn_key), 0),
    new.rank, new.arrived_at, new.seq
  FROM lines l CROSS JOIN profiles p ON p.id = l.profile WHERE l.id = new.line
  ON CONFLICT (task, key, line) DO UPDATE
  SET rank = excluded.rank, arrived_at = excluded.arrived_at, seq = excluded.seq
  WHERE heads.rank IS NULL
    OR (excluded.rank, excluded.arrived_at, excluded.seq) < (heads.rank, heads.arrived_at, heads.seq);
END;

-- And where one comes into line, or leaves it, its key is looked at again. Claims write no arrival: they do so themselves,
-- for all they give at once.
CREATE TRIGGER heads_of_changed AFTER UPDATE OF arrived_at ON jobs
WHEN new.stage = -1 OR old.stage = -1 BEGIN
  INSERT INTO heads (task, key, line, last, rank, arrived_at, seq)
  SELECT p.task, new.turn_key, new.line,
    coalesce((SELECT max(last) FROM heads WHERE task = p.task AND key = new.turn_key), 0),
    j.rank, j.arrived_at, j.seq
  FROM lines l CROSS JOIN profiles p ON p.id = l.profile LEFT JOIN jobs j ON j.seq = (
    SELECT seq FROM jobs WHERE stage = -1 AND line = new.line AND turn_key = new.turn_key
    ORDER BY rank, arrived_at, seq LIMIT 1)
  WHERE l.id = new.line
  ON CONFLICT (task, key, line) DO UPDATE
  SET rank = excluded.rank, arrived_at = excluded.arrived_at, seq = excluded.seq;
END;

CREATE TABLE leases (
  name   TEXT PRIMARY KEY,
  holder BLOB,
  token  INTEGER NOT NULL,
  until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
