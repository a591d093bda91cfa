-- Times are microseconds since 1970 in UTC. Texts named in brackets are JSON; kept as text, because a jsonb refuses
-- what a handler may well return (a NUL within a string), and the server never searches in them.

-- Counters of the whole store; one row, written only when a subqueue, a profile or a setting changes.
CREATE TABLE {schema}.books (
  profiles_rev  bigint NOT NULL,
  settings_rev  bigint NOT NULL,
  subqueues_rev bigint NOT NULL  -- grows when a subqueue is added or removed
);
INSERT INTO {schema}.books VALUES (0, 0, 0);

-- How often subqueues were collected: a sequence, because its value is read past any snapshot. Called once here, since
-- the first call leaves the value as it was.
CREATE SEQUENCE {schema}.collections;
SELECT nextval('{schema}.collections');

-- Accepted and pruned, as deltas that are only ever added: two inserts never write one row. Summed up now and then.
CREATE TABLE {schema}.ledger (
  accepted bigint NOT NULL,
  pruned   bigint NOT NULL
);

-- Of the pruned jobs, how many had ended in which way, as deltas that are only ever added, beside those of the ledger.
CREATE TABLE {schema}.pruned (
  completed bigint NOT NULL,
  failed    bigint NOT NULL,
  cancelled bigint NOT NULL
);

CREATE TABLE {schema}.profiles (
  id       integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task     text NOT NULL,
  requires text NOT NULL,         -- {JSON}, keys sorted
  digest   text NOT NULL UNIQUE,  -- of both; they may be longer than an index takes
  live     boolean NOT NULL,      -- false: no live job needs it; it is kept for an ended one that may be retried
  base     integer,               -- of the subqueue of a customer: the profile of the task and its requirements
  customer text                   -- its customer; null: of jobs without a customer
);
CREATE INDEX profiles_of_base ON {schema}.profiles (base) WHERE base IS NOT NULL;

-- A subqueue has the queued jobs that are alike to every worker: one queue, one profile. In queues that are set by
-- customer, each customer has subqueues, and these have profiles, of their own.
CREATE TABLE {schema}.subqueues (
  id      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue   text NOT NULL,
  profile integer NOT NULL,
  UNIQUE (queue, profile)
);
CREATE INDEX subqueues_of_profile ON {schema}.subqueues (profile);

-- The subqueues in which customers have live jobs, or had: these count their pairs of task and requirements. An insert
-- of a customer's job makes sure that its stake exists.
CREATE TABLE {schema}.stakes (
  customer text NOT NULL,
  subqueue integer NOT NULL,
  PRIMARY KEY (customer, subqueue)
);

-- The hot part: narrow, and with one full index; the others have only the jobs they are for. One number for a whole
-- batch, which is never larger: its jobs are counted on from there.
CREATE SEQUENCE {schema}.seqs INCREMENT BY 1024;
CREATE TABLE {schema}.jobs (
  -- First the columns that are never null and of fixed size: they are found in a row without reading those before. A
  -- claim and an end each add an entry for their job to the index of the key. Pages that inserts had filled would be
  -- searched for dead entries every time, and split: so they leave room.
  seq                 bigint PRIMARY KEY WITH (fillfactor = 50),
  arrived_at          bigint NOT NULL,
  available_at        bigint NOT NULL,
  updated_at          bigint NOT NULL,
  id                  uuid NOT NULL,
  subqueue            integer NOT NULL,
  rev                 integer NOT NULL,
  epoch               bigint NOT NULL,
  unstarted_losses    integer NOT NULL,
  stage               smallint NOT NULL,  -- its status for the indexes: 0 not queued yet, 1 deferred,
                                          -- 2 queued, -1 queued with a key, 3 held, 4 completed, 5 failed or cancelled
  rank                smallint NOT NULL,  -- the priority, negated: smaller is claimed first
  unnamed             smallint NOT NULL,  -- successive beats of its worker that did not name it
  tied                smallint NOT NULL DEFAULT 0,  -- 1 once another job was stored to wait for it
  worker              uuid,
  claim               bigint,
  act_by              bigint,
  assigned_at         bigint,
  accepted_at         bigint,
  finished_at         bigint,
  cancel_requested_at bigint,
  change              bigint,             -- the id of the last change: a repeat is recognised by it
  began               bigint,             -- of the attempt that completed the job: nothing comes after it, so it is kept
  number              integer,            -- here, with its worker, and has no row of its own
  status              text NOT NULL,
  held_key            text,               -- [task, dedup key], or its digest, while the job holds it
  turn_key            text COLLATE "C",   -- the concurrency key: those of one task take turns
  progress            text,               -- {JSON}
  state               text,               -- [JSON] of what no statement reads (record.State); null: as submitted
  result              text,               -- {JSON}
  error               text,               -- {JSON}
  took                double precision,   -- the seconds of that attempt's handler, where they were measured
  keep                text                -- the job's own retention: microseconds by status, as JSON; null: as the
                                          -- settings say
) WITH (
  -- Claim and finish leave two dead rows a job: clean up early and in small portions.
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.1, autovacuum_analyze_threshold = 5000
);
CREATE INDEX ready ON {schema}.jobs (subqueue, rank, arrived_at, seq) WHERE stage = 2;
CREATE INDEX turns ON {schema}.jobs (subqueue, turn_key, rank, arrived_at, seq) WHERE stage = -1;
CREATE INDEX due ON {schema}.jobs (available_at) WHERE stage = 1;
CREATE INDEX held ON {schema}.jobs (worker, claim) WHERE stage = 3;
CREATE INDEX expiring ON {schema}.jobs (act_by) WHERE act_by IS NOT NULL AND stage < 3;
CREATE INDEX finished ON {schema}.jobs (status, finished_at) WHERE stage >= 4;
-- Lost unstarted, and with a last moment to start: few, and every claim counts those that are past it.
CREATE INDEX fragile ON {schema}.jobs (act_by) WHERE act_by IS NOT NULL AND stage < 3 AND unstarted_losses > 0;
CREATE UNIQUE INDEX keys ON {schema}.jobs (held_key) WHERE held_key IS NOT NULL;
-- For searches (engines/sql/search/finder.py). Neither a claim nor the completion of a job writes these: the indexes
-- have only jobs that ended badly, were never queued, or changed otherwise before their end.
CREATE INDEX reasons ON {schema}.jobs ((state::json ->> 7), seq) WHERE stage = 5;
CREATE INDEX fingerprints ON {schema}.jobs ((state::json ->> 14), seq)
  WHERE stage <> 4 AND state IS NOT NULL AND (state::json ->> 14) IS NOT NULL;
CREATE INDEX suspects ON {schema}.jobs (seq)
  WHERE stage <> 4 AND state IS NOT NULL AND (state::json ->> 9)::integer > 0;
-- Ended jobs with a retention of their own, by when it is over.
CREATE INDEX outlived ON {schema}.jobs ((finished_at + (keep::json ->> status)::bigint)) WHERE stage >= 4 AND keep IS NOT NULL;
-- Failed jobs and jobs that wait for others are counted by subqueue repeatedly: with all that is counted in the index,
-- no row is read.
CREATE INDEX unlucky ON {schema}.jobs (status, seq) INCLUDE (subqueue, arrived_at) WHERE stage IN (0, 5);

-- Whether a worker holds jobs that this request gave it. Waits for a claim under way with the same request, and then
-- reads with a snapshot of its own: that of the calling statement may be older than the end of that claim.
CREATE FUNCTION {schema}.is_repeat(of_worker uuid, request bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(uuid_hash_extended(of_worker, request));
  RETURN EXISTS (SELECT 1 FROM {schema}.jobs WHERE stage = 3 AND worker = of_worker AND claim = request);
END $$;

-- In which blocks of 2^10 order numbers there are jobs of a subqueue; only ever added: two inserts never collide.
CREATE TABLE {schema}.subqueue_blocks (
  block    bigint NOT NULL,
  subqueue integer NOT NULL
);
CREATE INDEX blocks_of_subqueue ON {schema}.subqueue_blocks (subqueue, block);
-- For a change that moves a job to another subqueue.
CREATE FUNCTION {schema}.list_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('INSERT INTO %I.subqueue_blocks (subqueue, block) VALUES ($1, $2)', tg_table_schema)
  USING new.subqueue, new.seq >> 10;
  RETURN NULL;
END $$;
CREATE TRIGGER listed_again AFTER UPDATE OF subqueue ON {schema}.jobs FOR EACH ROW
WHEN (old.subqueue <> new.subqueue) EXECUTE FUNCTION {schema}.list_again();
-- In which blocks of 2^13 order numbers there are jobs that were created in a span of 2^29 microseconds.
CREATE TABLE {schema}.time_blocks (
  block  bigint NOT NULL,
  bucket bigint NOT NULL
);
CREATE INDEX times_of_block ON {schema}.time_blocks (block, bucket);

-- What never changes after the submit, with the index by id.
CREATE TABLE {schema}.bodies (
  id         uuid PRIMARY KEY,
  seq        bigint NOT NULL,
  payload    text NOT NULL,  -- {JSON}, as submitted
  spec       text NOT NULL,  -- {JSON}
  created_at bigint NOT NULL,
  request    text            -- the request key: [task, key of its customer], or its digest; removed with the job
                             -- when that is pruned
);
CREATE UNIQUE INDEX requests ON {schema}.bodies (request) WHERE request IS NOT NULL;

CREATE TABLE {schema}.attempts (
  seq    bigint NOT NULL,
  number integer NOT NULL,
  folded integer NOT NULL DEFAULT 0,  -- how many more like it were folded into this record
  until  bigint,                      -- when the last of those ended
  data   text NOT NULL,               -- [JSON], record.Past
  PRIMARY KEY (seq, number)
);

CREATE TABLE {schema}.events (
  id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seq  bigint NOT NULL,
  data text NOT NULL      -- {JSON}
);
CREATE INDEX events_of_job ON {schema}.events (seq);

-- Labels for searches beside subqueue and status: 't' + a tag, 's' + the schedule, 'c' + the customer, 'p' + the
-- parent, 'r' + the root, 'b' + the batch, 'o' + the id of the job that is run again; a long one by its digest.
CREATE TABLE {schema}.labels (
  seq   bigint NOT NULL,
  label text NOT NULL,
  PRIMARY KEY (seq, label)
);
CREATE INDEX labelled ON {schema}.labels (label, seq);

-- What runs add to their jobs: items of streams, lines of logs, results of steps. Apart from the jobs, because it is
-- much, and only readers that follow one job read it; the key is their order.
CREATE TABLE {schema}.entries (
  seq     bigint NOT NULL,
  at      bigint NOT NULL,
  attempt integer NOT NULL,
  number  integer NOT NULL,
  kind    text NOT NULL,
  name    text,
  data    text NOT NULL,    -- JSON
  PRIMARY KEY (seq, kind, attempt, number)
);

-- The jobs that a job was stored to wait for; kept until it is pruned.
CREATE TABLE {schema}.waits (
  child  bigint NOT NULL,
  parent bigint NOT NULL,
  PRIMARY KEY (child, parent)
);
CREATE INDEX waited_for ON {schema}.waits (parent, child);

-- Notes: written with the change that they follow from, processed by process_notes.
CREATE TABLE {schema}.notes (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  seq    bigint NOT NULL,           -- the job of the note; 0: a batch
  cursor bigint NOT NULL DEFAULT 0, -- the last of the concerned jobs that was processed
  kind   text NOT NULL,             -- the first letter of a core.change.Note
  batch  uuid                       -- the batch of the note
) WITH (
  -- Each row exists for a moment.
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

CREATE TABLE {schema}.batches (
  id           uuid PRIMARY KEY,
  created_at   bigint NOT NULL,
  touched_at   bigint NOT NULL,
  ended_at     bigint,
  cancelled_at bigint,
  total        bigint NOT NULL,
  completed    bigint NOT NULL,
  failed       bigint NOT NULL,
  cancelled    bigint NOT NULL,
  sealed       boolean NOT NULL,
  abandoned    boolean NOT NULL,
  settled      boolean NOT NULL,
  cancelled_by text,
  calls        text,               -- [JSON] of its callbacks; null: none
  customer     text                -- its customer, if all of its jobs have the same
);
CREATE INDEX batches_open ON {schema}.batches (touched_at) WHERE NOT sealed;
CREATE INDEX batches_over ON {schema}.batches (ended_at)
  WHERE sealed AND NOT settled AND completed + failed + cancelled >= total;
CREATE INDEX batches_made ON {schema}.batches (created_at, id);
CREATE INDEX batches_settled ON {schema}.batches (coalesce(ended_at, 0)) WHERE settled;
CREATE INDEX batches_of_customer ON {schema}.batches (customer, created_at, id) WHERE customer IS NOT NULL;

-- What writes add to batches, as deltas that are only ever added: two finishes never write one row. process_notes sums
-- up.
CREATE TABLE {schema}.batch_counts (
  batch     uuid NOT NULL,
  at        bigint,              -- when jobs were added; null: none were
  total     integer NOT NULL,
  completed integer NOT NULL,
  failed    integer NOT NULL,
  cancelled integer NOT NULL
) WITH (
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX counts_of_batch ON {schema}.batch_counts (batch);

-- No index but the key, and room on the page: a beat writes nothing else.
CREATE TABLE {schema}.workers (
  id             uuid PRIMARY KEY,
  info           text NOT NULL,  -- {JSON}
  beat           text NOT NULL,  -- {JSON}
  beats          bigint NOT NULL,
  beat_at        bigint NOT NULL,
  alive          boolean NOT NULL,
  -- What is known of its death: how long earlier watchers saw its beat unchanged, and, of its burial, whether a suspect
  -- ran on it and whether others died at the same time.
  watched        text,           -- [JSON]: beats, looks, seconds
  beside_suspect boolean NOT NULL DEFAULT false,
  mass_death     boolean NOT NULL DEFAULT false,
  reported       bigint NOT NULL DEFAULT 0  -- the number of its last report that was kept
) WITH (fillfactor = 50);

-- What workers send with their beats, as it comes: no two of them ever write one row.
CREATE TABLE {schema}.reports (
  id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  data text NOT NULL        -- [JSON], core.stats.rollup.Rollup
) WITH (
  -- Each row exists for a minute.
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);

-- The sums. Of one moment, task and queue there may be several rows: readers add them up, too.
CREATE TABLE {schema}.rollups (
  at    bigint NOT NULL,    -- when it began
  step  integer NOT NULL,   -- seconds: a minute, an hour or a day
  task  text NOT NULL,
  queue text NOT NULL,
  data  text NOT NULL       -- [JSON], core.stats.rollup.Totals
) WITH (
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX rollups_at ON {schema}.rollups (step, at);

CREATE TABLE {schema}.settings (
  key   text PRIMARY KEY,
  value text NOT NULL,    -- {JSON}
  rev   bigint NOT NULL
);

-- The audit of settings: the newest actions.
CREATE TABLE {schema}.audit (
  id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key  text NOT NULL,
  data text NOT NULL      -- {JSON}
);

-- The settings queue:NAME, as claims use them; written with them.
CREATE TABLE {schema}.queues (
  name     text PRIMARY KEY,
  priority integer NOT NULL,
  paused   boolean NOT NULL
);

-- What a claim locks while it reads what is in use, or which key is next: task:NAME, queue:NAME, rate:NAME.
CREATE TABLE {schema}.gates (name text PRIMARY KEY);

-- What was used of rates: a name is a JSON array.
CREATE TABLE {schema}.spent (
  name  text PRIMARY KEY,
  data  text NOT NULL,    -- [JSON], core.limits.rate.Spent
  until bigint NOT NULL   -- from when on it no longer counts
);
CREATE INDEX spent_until ON {schema}.spent (until);

-- The positions of a task's concurrency keys in its subqueues, for claims, which read no more of them than they want.
-- Written only with the gate of the task locked.
CREATE TABLE {schema}.heads (
  task     text COLLATE "C" NOT NULL,
  key      text COLLATE "C" NOT NULL,
  subqueue integer NOT NULL,
  -- The position of the first of its queued jobs, which is there or further back. A rank of null: none is queued.
  rank     smallint,
  at       bigint NOT NULL,   -- when it arrived or, if that was later, when the key last took its turn
  seq      bigint NOT NULL,
  last     bigint NOT NULL,   -- when the key last took its turn, in whichever subqueue
  PRIMARY KEY (task, key, subqueue)
) WITH (
  fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX heads_in_subqueue ON {schema}.heads (subqueue, rank, at, seq) WHERE rank IS NOT NULL;
-- Jobs with keys that came into a subqueue: the next claim adds them to the heads, so that an insert never waits for
-- another.
CREATE TABLE {schema}.arrivals (
  subqueue   integer NOT NULL,
  rank       smallint NOT NULL,
  arrived_at bigint NOT NULL,
  seq        bigint NOT NULL,
  key        text COLLATE "C" NOT NULL
) WITH (
  -- Each row exists for a moment.
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX arrived ON {schema}.arrivals (subqueue);

CREATE TABLE {schema}.leases (
  name   text PRIMARY KEY,
  holder uuid,
  token  bigint NOT NULL,
  until  bigint NOT NULL
);

-- The jobs for people with psql: times as times, the task and the queue by name. Nothing in headrace reads it.
CREATE VIEW {schema}.overview AS
SELECT
  j.seq, b.id, p.task, l.queue, -j.rank AS priority, j.status, j.worker, j.rev, j.epoch,
  to_timestamp(j.arrived_at / 1e6) AS arrived_at,
  to_timestamp(j.available_at / 1e6) AS available_at,
  to_timestamp(j.assigned_at / 1e6) AS assigned_at,
  to_timestamp(j.finished_at / 1e6) AS finished_at,
  to_timestamp(j.updated_at / 1e6) AS updated_at,
  j.progress, b.payload, j.result, j.error
FROM {schema}.jobs j
  JOIN {schema}.bodies b ON b.id = j.id
  JOIN {schema}.subqueues l ON l.id = j.subqueue
  JOIN {schema}.profiles p ON p.id = l.profile;
