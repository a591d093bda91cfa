-- Times are microseconds since 1970 in UTC. Ids are the 16 bytes of a UUID. Texts named in brackets are JSON.

-- Counters of the whole store; one row. A job that is stored alone does not write it: that is one page less to write.
CREATE TABLE books (
  last_seq         INTEGER NOT NULL,  -- the order number up to which jobs are counted here: each higher one is a job that
                                      -- was accepted since; numbers have no gaps and are never given twice
  accepted         INTEGER NOT NULL,
  pruned           INTEGER NOT NULL,
  profiles_rev     INTEGER NOT NULL,
  settings_rev     INTEGER NOT NULL,
  subqueues_rev    INTEGER NOT NULL,  -- grows when a subqueue is added or removed
  collected        INTEGER NOT NULL,  -- grows when subqueues are removed: sessions forget what they interned
  pruned_completed INTEGER NOT NULL DEFAULT 0,  -- of the pruned jobs, how many had ended in which way
  pruned_failed    INTEGER NOT NULL DEFAULT 0,
  pruned_cancelled INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO books VALUES (0, 0, 0, 0, 0, 0, 0, 0, 0, 0);

CREATE TABLE profiles (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  task     TEXT NOT NULL,
  requires TEXT NOT NULL,     -- {JSON}, keys sorted
  live     INTEGER NOT NULL,  -- 0: no live job needs it; it waits for an ended one to come back or to be pruned
  base     INTEGER,           -- of the subqueue of a customer: the profile of the task and its requirements
  customer TEXT,              -- whose it is; null: of jobs without a customer
  UNIQUE (task, requires)
) STRICT;
CREATE INDEX profiles_of_base ON profiles (base) WHERE base IS NOT NULL;

-- A subqueue has the queued jobs that are alike to every worker: one queue, one profile. In queues that are set by
-- customer, each customer has subqueues, and these have profiles, of their own.
CREATE TABLE subqueues (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  queue   TEXT NOT NULL,
  profile INTEGER NOT NULL,
  UNIQUE (queue, profile)
) STRICT;
CREATE INDEX subqueues_of_profile ON subqueues (profile);

-- The subqueues in which customers have live jobs, or had: these count their pairs of task and requirements. An insert
-- of a customer's job makes sure that its stake exists.
CREATE TABLE stakes (
  customer TEXT NOT NULL,
  subqueue INTEGER NOT NULL,
  PRIMARY KEY (customer, subqueue)
) STRICT, WITHOUT ROWID;

-- The hot part: narrow, and without what only people read.
CREATE TABLE jobs (
  seq                 INTEGER PRIMARY KEY,
  id                  BLOB NOT NULL UNIQUE,
  subqueue            INTEGER NOT NULL,
  status              TEXT NOT NULL,
  stage               INTEGER NOT NULL,  -- what its status comes to for the indexes: 0 not queued yet, 1 deferred,
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
  change              INTEGER,           -- the id of the last change: a repeat is recognised by it
  created_at          INTEGER NOT NULL,
  keep                TEXT,              -- the retention of the job's own: microseconds by status, as JSON; null: as the
                                         -- settings say
  number              INTEGER,           -- of the attempt that completed the job: nothing comes after it, so it is kept
                                         -- here, with its worker, and has no row of its own
  took                REAL               -- the seconds that its handler took; null: nobody measured
) STRICT;
CREATE INDEX ready ON jobs (subqueue, rank, arrived_at, seq) WHERE stage = 2;
CREATE INDEX turns ON jobs (subqueue, turn_key, rank, arrived_at, seq) WHERE stage = -1;
CREATE INDEX due ON jobs (available_at, subqueue, status, arrived_at) WHERE stage = 1;
CREATE INDEX parked ON jobs (subqueue, status, arrived_at) WHERE stage = 0;
CREATE INDEX held ON jobs (worker, claim) WHERE stage = 3;
CREATE INDEX expiring ON jobs (act_by)
  WHERE act_by IS NOT NULL AND stage < 3;
CREATE INDEX finished ON jobs (status, finished_at, subqueue) WHERE stage >= 4;
CREATE INDEX unlucky ON jobs (status) WHERE stage = 5;
CREATE UNIQUE INDEX keys ON jobs (held_key) WHERE held_key IS NOT NULL;
-- For searches (engines/sql/search/finder.py). Neither a claim nor the completion of a job writes these: the indexes
-- have only jobs that ended badly, or changed otherwise before their end.
CREATE INDEX reasons ON jobs (state ->> 7) WHERE stage = 5;
CREATE INDEX fingerprints ON jobs (state ->> 14) WHERE stage <> 4 AND state IS NOT NULL AND state ->> 14 IS NOT NULL;
CREATE INDEX suspects ON jobs (stage) WHERE stage <> 4 AND state IS NOT NULL AND state ->> 9 > 0;
-- Ended jobs with a retention of their own, by when it is over.
CREATE INDEX outlived ON jobs (finished_at + (keep ->> status)) WHERE stage >= 4 AND keep IS NOT NULL;

-- Before an uncounted job is deleted, jobs are counted, or its number would be given again.
CREATE TRIGGER counted_first BEFORE DELETE ON jobs WHEN old.seq > (SELECT last_seq FROM books) BEGIN
  UPDATE books SET accepted = accepted + (SELECT max(seq) FROM jobs) - last_seq, last_seq = (SELECT max(seq) FROM jobs);
END;

-- In which blocks of 2^10 order numbers there are jobs of a subqueue.
CREATE TABLE subqueue_blocks (
  subqueue INTEGER NOT NULL,
  block    INTEGER NOT NULL,
  PRIMARY KEY (subqueue, block)
) STRICT, WITHOUT ROWID;
-- For a change that moves a job to another subqueue.
CREATE TRIGGER listed_again AFTER UPDATE OF subqueue ON jobs WHEN new.subqueue <> old.subqueue BEGIN
  INSERT OR IGNORE INTO subqueue_blocks VALUES (new.subqueue, new.seq >> 10);
END;
-- In which blocks of 2^12 order numbers there are jobs that were created in a span of 2^29 microseconds.
CREATE TABLE time_blocks (
  block  INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  PRIMARY KEY (block, bucket)
) STRICT, WITHOUT ROWID;

CREATE TABLE bodies (
  seq     INTEGER PRIMARY KEY,
  payload TEXT NOT NULL,  -- {JSON}, as submitted
  spec    TEXT NOT NULL,  -- {JSON}
  request TEXT            -- the request key: [task, key of its customer]; it goes with the job when that is pruned
) STRICT;
CREATE UNIQUE INDEX requests ON bodies (request) WHERE request IS NOT NULL;

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

-- Labels for searches beside subqueue and status: 't' + a tag, 's' + the schedule, 'c' + the customer, 'p', 'r' and 'b'
-- + the id of the parent, the root and the batch, 'o' + the id of the job that is run again.
CREATE TABLE labels (
  seq   INTEGER NOT NULL,
  label TEXT NOT NULL,
  PRIMARY KEY (seq, label)
) STRICT, WITHOUT ROWID;
CREATE INDEX labelled ON labels (label, seq);

-- What runs add to their jobs: items of streams, lines of logs, results of steps. Apart from the jobs, because it is
-- much, and only readers that follow one job read it; the key is their order.
CREATE TABLE entries (
  seq     INTEGER NOT NULL,
  kind    TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  number  INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  name    TEXT,
  data    TEXT NOT NULL,    -- JSON
  PRIMARY KEY (seq, kind, attempt, number)
) STRICT, WITHOUT ROWID;

-- The jobs that a job was stored to wait for; kept as long as the job itself.
CREATE TABLE waits (
  child  INTEGER NOT NULL,
  parent INTEGER NOT NULL,
  PRIMARY KEY (child, parent)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX waits_for ON waits (parent, child);

-- Notes for other jobs that are not processed yet.
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
  calls        TEXT NOT NULL,  -- [JSON] of what is submitted at its end: on_complete, on_failure
  customer     TEXT            -- whose it is, if all of its jobs are one customer's
) STRICT;
CREATE INDEX batches_open ON batches (touched_at) WHERE NOT sealed;
CREATE INDEX batches_over ON batches (created_at)
  WHERE sealed AND NOT settled AND total <= completed + failed + cancelled;
CREATE INDEX batches_made ON batches (created_at, id);
CREATE INDEX batches_settled ON batches (coalesce(ended_at, 0)) WHERE settled;
CREATE INDEX batches_of_customer ON batches (customer, created_at, id) WHERE customer IS NOT NULL;

-- No index but the key: a beat writes nothing else.
CREATE TABLE workers (
  id             BLOB PRIMARY KEY,
  info           TEXT NOT NULL,  -- {JSON}
  beat           TEXT NOT NULL,  -- {JSON}
  beats          INTEGER NOT NULL,
  beat_at        INTEGER NOT NULL,
  alive          INTEGER NOT NULL,
  -- What is known of its death: how long earlier watchers saw its beat stand still, and, of its burial, whether a suspect
  -- ran on it and whether others died at the same time.
  watched        TEXT,           -- [JSON]: beats, looks, seconds
  beside_suspect INTEGER NOT NULL DEFAULT 0,
  mass_death     INTEGER NOT NULL DEFAULT 0,
  reported       INTEGER NOT NULL DEFAULT 0  -- the number of its last report that was kept
) STRICT;

-- What workers send with their beats, as it comes.
CREATE TABLE reports (
  id   INTEGER PRIMARY KEY,
  data TEXT NOT NULL        -- [JSON], core.rollup.Rollup
) STRICT;

-- The sums. Of one moment, task and queue there may be several rows: readers add them up, too.
CREATE TABLE rollups (
  step  INTEGER NOT NULL,   -- seconds: a minute, an hour or a day
  at    INTEGER NOT NULL,   -- when it began
  task  TEXT NOT NULL,
  queue TEXT NOT NULL,
  data  TEXT NOT NULL       -- [JSON], core.rollup.Totals
) STRICT;
CREATE INDEX rollups_at ON rollups (step, at, task, queue);

CREATE TABLE settings (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL,    -- {JSON}
  rev   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The audit of settings: the newest actions.
CREATE TABLE audit (
  id   INTEGER PRIMARY KEY,
  key  TEXT NOT NULL,
  data TEXT NOT NULL      -- {JSON}
) STRICT;

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

-- The concurrency keys of a task: when each last took its turn, and the position of its first job in each subqueue.
-- Claims read as many as they need, in their order, however many there are.
CREATE TABLE heads (
  task       TEXT NOT NULL,
  key        TEXT NOT NULL,
  subqueue   INTEGER NOT NULL,
  last       INTEGER NOT NULL,  -- 0: never, as far as is remembered; the same in all subqueues of the task
  rank       INTEGER,           -- these three are those of the job; null: none of the key is in this subqueue
  arrived_at INTEGER,
  seq        INTEGER,
  at         INTEGER AS (max(arrived_at, last)) VIRTUAL,
  PRIMARY KEY (task, key, subqueue)
) STRICT, WITHOUT ROWID;
CREATE INDEX heads_in_subqueue ON heads (subqueue, rank, at, seq) WHERE rank IS NOT NULL;

-- For all writers of jobs: a new one may be the first of its key now.
CREATE TRIGGER heads_of_new AFTER INSERT ON jobs WHEN new.stage = -1 BEGIN
  INSERT INTO heads (task, key, subqueue, last, rank, arrived_at, seq)
  SELECT p.task, new.turn_key, new.subqueue,
    coalesce((SELECT max(last) FROM heads WHERE task = p.task AND key = new.turn_key), 0),
    new.rank, new.arrived_at, new.seq
  FROM subqueues l CROSS JOIN profiles p ON p.id = l.profile WHERE l.id = new.subqueue
  ON CONFLICT (task, key, subqueue) DO UPDATE
  SET rank = excluded.rank, arrived_at = excluded.arrived_at, seq = excluded.seq
  WHERE heads.rank IS NULL
    OR (excluded.rank, excluded.arrived_at, excluded.seq) < (heads.rank, heads.arrived_at, heads.seq);
END;

-- And where one comes into a subqueue, or leaves it, the head of its key is found again. Claims write no arrival: they
-- do so themselves, for all they give at once.
CREATE TRIGGER heads_of_changed AFTER UPDATE OF arrived_at ON jobs
WHEN new.stage = -1 OR old.stage = -1 BEGIN
  INSERT INTO heads (task, key, subqueue, last, rank, arrived_at, seq)
  SELECT p.task, new.turn_key, new.subqueue,
    coalesce((SELECT max(last) FROM heads WHERE task = p.task AND key = new.turn_key), 0),
    j.rank, j.arrived_at, j.seq
  FROM subqueues l CROSS JOIN profiles p ON p.id = l.profile LEFT JOIN jobs j ON j.seq = (
    SELECT seq FROM jobs WHERE stage = -1 AND subqueue = new.subqueue AND turn_key = new.turn_key
    ORDER BY rank, arrived_at, seq LIMIT 1)
  WHERE l.id = new.subqueue
  ON CONFLICT (task, key, subqueue) DO UPDATE
  SET rank = excluded.rank, arrived_at = excluded.arrived_at, seq = excluded.seq;
END;

CREATE TABLE leases (
  name   TEXT PRIMARY KEY,
  holder BLOB,
  token  INTEGER NOT NULL,
  until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
