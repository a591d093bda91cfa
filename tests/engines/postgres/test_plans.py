"""Plans: the hot statements go down their indexes whatever the planner believes, and cost the same on a full table."""

from __future__ import annotations

import asyncio
import json
import operator
import re
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import resources
from typing import Any

import asyncpg
import pytest

from headrace.conformance.lab import BEGIN, Lab
from headrace.core.defaults import Rules
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.status import DEFERRED, ENDED, HELD, IDLE, Status
from headrace.engine import Claimed
from headrace.engines.postgres.jobs.apply import apply_text, complete_text
from headrace.engines.postgres.jobs.claim import Claiming, many_subqueues, one_subqueue
from headrace.engines.postgres.jobs.columns import ALIKE, COMPLETE
from headrace.engines.postgres.jobs.key_rotation import stand
from headrace.engines.postgres.jobs.limited_claim import give
from headrace.engines.postgres.jobs.role import delete_old, delete_tied
from headrace.engines.postgres.store.connection import Connection, sql
from headrace.engines.postgres.store.pool import COLD, HOT, WARM, Pool
from headrace.engines.sql.encoding import STAGES, micros
from headrace.runtime.host import Host
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import postgres_engine, schema_of

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("plans")]  # the full stores are made once

PACKAGE = resources.files("headrace.engines.postgres")

BIG = ("jobs", "bodies", "attempts", "events", "labels", "waits", "heads", "arrivals")
"""Tables that hold a row or more for each job."""

FILL = """
INSERT INTO {schema}.jobs (
  seq, id, arrived_at, available_at, updated_at, finished_at, worker, subqueue, rev, epoch, unstarted_losses, unnamed,
  rank, stage, status, state)
SELECT n, gen_random_uuid(), {now} + n, {now} + n, {now}, CASE WHEN n % 2 = 0 THEN {now} + n END,
  CASE WHEN n % 2 = 0 THEN '00000000-0000-0000-0000-000000000001'::uuid END, 1 + n % 3, 1, 0, 0, 0, -50,
  CASE WHEN n % 2 = 0 THEN 4 ELSE 2 END, CASE WHEN n % 2 = 0 THEN 'completed' ELSE 'queued' END, NULL
FROM generate_series(1, {rows}) n;
INSERT INTO {schema}.bodies (seq, id, payload, spec, created_at)
SELECT seq, id, '{{}}', '{{"task": "work"}}', arrived_at FROM {schema}.jobs ON CONFLICT DO NOTHING;
INSERT INTO {schema}.attempts (seq, number, data)
SELECT n, 1, '[1,0,1,"completed",null,null,null,null,null]' FROM generate_series(2, {rows}, 2) n;
INSERT INTO {schema}.labels (seq, label) SELECT n, 't' || n % 100 FROM generate_series(1, {rows}, 5) n;
INSERT INTO {schema}.events (seq, data) SELECT n, '{{}}' FROM generate_series(1, {rows}, 5) n;
INSERT INTO {schema}.waits (child, parent) SELECT n, n - 1 FROM generate_series(3, {rows}, 2) n;
INSERT INTO {schema}.batches (
  id, created_at, touched_at, sealed, abandoned, settled, total, completed, failed, cancelled, ended_at)
SELECT gen_random_uuid(), {now} + n, {now} + n, true, false, n % 2 = 0, 1, n % 2, 0, 0,
  CASE n % 2 WHEN 1 THEN {now} + n END
FROM generate_series(1, {rows} / 10) n;
INSERT INTO {schema}.heads (task, key, subqueue, rank, at, seq, last)
SELECT 'work', 'k' || n, 1 + n % 3, CASE n % 2 WHEN 0 THEN -50 END, {now} + n, n, {now}
FROM generate_series(1, {rows} / 5) n;
INSERT INTO {schema}.arrivals (subqueue, rank, arrived_at, seq, key)
SELECT 1 + n % 3, -50, {now} + n, n, 'k' || n FROM generate_series(1, {rows} / 5) n;
SELECT setval('{schema}.seqs', {rows} + 1);
"""


async def fill(connection: Connection, schema: str, rows: int = 50_000) -> None:
    """As many jobs, half of them done, half in line.

    Nothing is made at the same moment as all else: to a server that has found that out, an index by moment and id would
    be as good as one by id.
    """
    await connection.execute(FILL.format(schema=schema, now=micros(BEGIN) - 10**9, rows=rows))


STATES = ("never analyzed", "analyzed while empty", "analyzed with a few rows", "freshly analyzed")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A full store in each state of the planner's knowledge: their schemas."""
    found: dict[str, str] = {}

    async def make(state: str) -> None:
        place = tmp_path_factory.mktemp("plans")
        schema = f'"{schema_of(place)}"'
        engine = postgres_engine(Rules(), Host(), place)
        await engine.open()
        await engine.close()
        connection = await asyncpg.connect(shared().url())
        for table in BIG:
            await connection.execute(f"ALTER TABLE {schema}.{table} SET (autovacuum_enabled = off)")
        tables = ", ".join(f"{schema}.{table}" for table in BIG)
        # The schema may be lent: rows that were deleted in it have left pages, and ANALYZE would find those empty.
        await connection.execute(f"TRUNCATE {tables}")
        if state == "analyzed with a few rows":
            await fill(connection, schema, 5)
        if state != "never analyzed":
            await connection.execute(f"ANALYZE {tables}")
        for table in (*BIG, "batches"):
            await connection.execute(f"DELETE FROM {schema}.{table}")
        await fill(connection, schema)
        if state == "freshly analyzed":
            await connection.execute(f"ANALYZE {tables}")
        await connection.close()
        found[state] = schema

    for state in STATES:
        asyncio.run(make(state))
    return found


@pytest.fixture(params=STATES)
def store(request: pytest.FixtureRequest, stores: dict[str, str]) -> str:
    return stores[request.param]


@pytest.fixture
async def hot(store: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(shared().url(), server_settings=HOT)
    yield connection
    connection.terminate()


@pytest.fixture
async def warm(store: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(shared().url(), server_settings=WARM)
    yield connection
    connection.terminate()


@pytest.fixture
async def cold(store: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(shared().url(), server_settings=COLD)
    yield connection
    connection.terminate()


class Node:
    """One step of a plan."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.kind: str = found["Node Type"]
        self.table: str = found.get("Relation Name", "")
        self.index: str = found.get("Index Name", "")
        self.sought: str = found.get("Index Cond", "")
        self.buffers: int = found.get("Shared Hit Blocks", 0) + found.get("Shared Read Blocks", 0)
        self.below = [Node(one) for one in found.get("Plans", ())]

    def all(self) -> Iterator[Node]:
        yield self
        for one in self.below:
            yield from one.all()

    def __repr__(self) -> str:
        return f"{self.kind} {self.table} {self.index} [{self.sought}]"


def arguments(text: str) -> int:
    """How many a statement takes."""
    return max((int(number) for number in re.findall(r"\$(\d+)", text)), default=0)


async def explain(connection: Connection, text: str, values: list[str] | None = None, *, run: bool = False) -> Node:
    """The plan of a statement as the engine's connections make it; with ``run``, what it touched."""
    await connection.execute(f"PREPARE asked AS {text}")
    try:
        return await execute(connection, "asked", text, values, run=run)
    finally:
        await connection.execute("DEALLOCATE asked")


async def execute(
    connection: Connection, name: str, text: str, values: list[str] | None = None, *, run: bool = False
) -> Node:
    """The plan of a statement that is prepared."""
    given = ", ".join(values or ["NULL"] * arguments(text))
    options = "ANALYZE, BUFFERS, " if run else ""
    asked = f"EXPLAIN ({options}FORMAT JSON) EXECUTE {name}" + (f" ({given})" if given else "")
    return Node(json.loads(await connection.fetchval(asked))[0]["Plan"])


def check_plan(plan: Node, uses: set[str], whole: frozenset[str] = frozenset()) -> None:
    """Every big table is reached by an index, and at a place that is looked for; ``whole`` are read from end to end."""
    nodes = list(plan.all())
    assert uses <= {node.index for node in nodes}, nodes
    for node in nodes:
        assert not (node.kind in ("Seq Scan", "Bitmap Heap Scan") and node.table in BIG), nodes
        # Of those that wait for a moment, only the first is looked at.
        if node.kind.startswith("Index") and node.table in BIG and node.index not in {"due", *whole}:
            assert node.sought, f"{node} goes through the whole index: {nodes}"


# Plans

HOT_STATEMENTS: dict[str, set[str]] = {
    "beat_many": {"workers_pkey", "held", "jobs_pkey"},
    "claimed": {"held", "bodies_pkey"},
    "delete": {
        "finished",
        "outlived",
        "jobs_pkey",
        "bodies_pkey",
        "attempts_pkey",
        "events_of_job",
        "labels_pkey",
        "waits_pkey",
        "waited_for",
        "batches_settled",
        "heads_pkey",
        "arrived",
    },
    "delete of tied": {"jobs_pkey", "bodies_pkey", "labels_pkey", "waits_pkey", "waited_for", "heads_pkey", "arrived"},
    "glance": {"notes_pkey", "batches_open", "batches_over"},
    "fold": {"batches_open", "batches_over", "batches_pkey"},
    "batches": {"batches_pkey", "counts_of_batch"},
    "find_batches": {"batches_made", "counts_of_batch"},
    "seal": {"batches_pkey"},
    "hold_batch": {"batches_pkey"},
    "cancel_batch": {"batches_pkey"},
    "settle": {"batches_pkey"},
    "get": {"bodies_pkey", "jobs_pkey"},
    "changed": {"bodies_pkey", "jobs_pkey"},
    "promote": {"due", "jobs_pkey"},
    "overdue": {"held", "expiring", "jobs_pkey", "bodies_pkey"},
    "lease": set(),
    "unlease": {"leases_pkey"},
    "insert": {"times_of_block"},
    "in_subqueues": {"ready", "turns", "heads_in_subqueue"},
    "arrive": {"arrived", "heads_pkey"},
    "usage": {"held"},
    "position": {"ready", "turns", "due", "finished"},
    "give": {"jobs_pkey", "bodies_pkey", "heads_pkey"},
    "stand": {"heads_pkey"},
    "gates": {"gates_pkey", "heads_in_subqueue", "arrived"},
    "limited_head": {"workers_pkey", "held", "due", "arrived"},
    "is_repeat": {"held"},
    "claim of one line": {"ready", "due", "fragile", "workers_pkey", "bodies_pkey"},
    "claim of many lines": {"ready", "due", "fragile", "workers_pkey", "jobs_pkey", "bodies_pkey"},
}


def is_repeat(schema: str) -> str:
    """What the function of this name looks for."""
    made = PACKAGE.joinpath("migrations", "0001_initial.sql").read_text()
    [(looked,)] = [one.groups() for one in re.finditer(r"RETURN (EXISTS .*);", made)]
    return f"SELECT {looked}".format(schema=schema).replace("of_worker", "$1").replace("= request", "= $2")


def statement(verb: str, schema: str) -> str:
    made: dict[str, Callable[[str], str]] = {
        "is_repeat": is_repeat,
        "claim of one line": one_subqueue,
        "claim of many lines": many_subqueues,
        "give": give,
        "stand": stand,
        "delete": delete_old,
        "delete of tied": delete_tied,
    }
    return made[verb](schema) if verb in made else sql(verb, schema)


def check_hot(verb: str, plan: Node) -> None:
    # All that is held is looked at, by whom it may be.
    check_plan(
        plan, HOT_STATEMENTS[verb], frozenset({"held"}) if verb in ("overdue", "usage", "limited_head") else frozenset()
    )
    for node in plan.all():
        if node.index == "ready":
            assert "subqueue" in node.sought, node
        if verb == "claim of one line" and node.kind in ("Sort", "Incremental Sort"):
            assert "ready" not in {below.index for below in node.all()}, list(plan.all())  # it is read in order
    if verb.startswith("claim of"):  # what is given is found where it was locked
        assert [node.table for node in plan.all() if node.kind == "Tid Scan"] == ["jobs"], list(plan.all())


@pytest.mark.parametrize("verb", HOT_STATEMENTS)
async def test_a_hot_statement_goes_by_its_indexes(hot: Connection, store: str, verb: str) -> None:
    check_hot(verb, await explain(hot, statement(verb, store)))


async def test_plans_made_on_an_empty_table_and_kept_are_good_on_a_full_one(lab: Lab, schema: str) -> None:
    """As in a worker that is there before the jobs are, and whose statements nobody plans again."""
    early, filler = [await asyncpg.connect(shared().url(), server_settings=each) for each in (HOT, COLD)]
    for table in BIG:
        await filler.execute(f"ALTER TABLE {schema}.{table} SET (autovacuum_enabled = off)")
    for number, verb in enumerate(HOT_STATEMENTS):
        await early.execute(f"PREPARE kept_{number} AS {statement(verb, schema)}")
        await execute(early, f"kept_{number}", statement(verb, schema))
    await fill(filler, schema)
    for number, verb in enumerate(HOT_STATEMENTS):
        check_hot(verb, await execute(early, f"kept_{number}", statement(verb, schema)))
    [(planned,)] = await early.fetch("SELECT min(generic_plans) FROM pg_prepared_statements WHERE name LIKE 'kept_%'")
    assert planned == 2
    await early.close()
    await filler.close()


CHANGES: dict[str, Callable[[str], str]] = {
    "changes": lambda schema: sql("changes_rows", schema) + apply_text(schema, followed=False),
    "changes that others follow from": lambda schema: sql("changes_rows", schema) + apply_text(schema),
    "complete": lambda schema: complete_text(schema, counted=False),
    "complete of members": lambda schema: complete_text(schema, counted=True),
    "report": lambda schema: sql("report", schema),
    "unlocked": lambda schema: sql("unlocked", schema),
}


@pytest.mark.parametrize("verb", CHANGES)
async def test_changes_go_by_the_key_in_the_order_they_are_given(warm: Connection, store: str, verb: str) -> None:
    text = CHANGES[verb](store)
    values = ["'{1,2,3}'" if verb == "unlocked" else "'{NULL,NULL,NULL}'"] * arguments(text)
    if verb.startswith("complete"):
        values[len(COMPLETE) :] = ["NULL"] * len(ALIKE)
    plan = await explain(warm, text, values)
    check_plan(plan, {"jobs_pkey"})
    updates = [node for node in plan.all() if node.kind == "ModifyTable" and node.table == "jobs"]
    assert len(updates) == (verb != "unlocked")
    for update in updates:
        # That of the order numbers: everybody locks in the same order.
        assert [node.kind for node in update.below] == ["Nested Loop"]
        assert update.below[0].below[0].kind in ("Function Scan", "CTE Scan")


MANY = "'{" + ",".join(map(str, range(1, 3000, 3))) + "}'"
COLD_TEXTS: dict[str, Callable[[str], str]] = {
    "changes": lambda schema: sql("changes_document", schema) + apply_text(schema),
    "changes that follow": lambda schema: sql("changes_rows", schema) + apply_text(schema),
    "relatives": lambda schema: sql("relatives", schema, lock="NO KEY UPDATE"),
    "open_batches": lambda schema: sql("open_batches", schema, lock="KEY SHARE SKIP LOCKED"),
    "hold": lambda schema: sql("hold", schema, wait=" SKIP LOCKED"),
}

COLD_STATEMENTS: dict[str, tuple[set[str], list[str]]] = {
    "history": ({"bodies_pkey", "attempts_pkey", "events_of_job"}, ["gen_random_uuid()"]),
    "known": ({"bodies_pkey", "keys"}, ["""'{"ids": [], "keys": []}'"""]),
    "changes": ({"jobs_pkey"}, ["'[]'"]),
    "second_look": ({"bodies_pkey", "keys"}, ["'[]'"]),
    "relatives": ({"bodies_pkey", "jobs_pkey"}, ["""'["00000000-0000-0000-0000-000000000001"]'"""]),
    "open_batches": ({"batches_pkey"}, ["""'["00000000-0000-0000-0000-000000000001"]'"""]),
    "relate": ({"bodies_pkey", "jobs_pkey"}, ["""'{"edges": [], "noted": [], "batches": [], "counts": []}'"""]),
    "take_notes": ({"notes_pkey"}, ["0", "1000"]),
    "concerned": (
        {"waited_for", "labelled", "jobs_pkey"},
        ["'{1,2,3,4}'", "'{e,w,c,s}'", "'{1,2,3,0}'", "'{0,0,0,0}'", "1000"],
    ),
    "hold": ({"jobs_pkey", "bodies_pkey"}, [MANY, MANY, "'waiting'"]),
    "parents": ({"waits_pkey", "jobs_pkey"}, [MANY]),
    "processed": ({"notes_pkey"}, ["'{1,2}'", "'{3}'", "'{9}'"]),
    "changes that follow": ({"jobs_pkey"}, []),
    "workers": ({"held"}, []),
    "forget": ({"held"}, []),
}


@pytest.mark.parametrize("verb", COLD_STATEMENTS)
async def test_the_other_statements_that_are_made_often_go_by_index_too(
    cold: Connection, store: str, verb: str
) -> None:
    uses, values = COLD_STATEMENTS[verb]
    text = COLD_TEXTS[verb](store) if verb in COLD_TEXTS else sql(verb, store)
    plan = await explain(cold, text, values or ["'{NULL,NULL,NULL}'"] * arguments(text))
    nodes = list(plan.all())
    assert uses <= {node.index for node in nodes}, nodes
    assert not [node for node in nodes if node.kind == "Seq Scan" and node.table in BIG], nodes


async def test_what_stands_is_counted_without_a_look_at_what_completed(cold: Connection, store: str) -> None:
    await cold.execute("SET enable_seqscan = off")  # as the engine does
    plan = await explain(cold, sql("count_standing", store), ["1", "'failed'", "'{waiting,pending}'"])
    nodes = list(plan.all())
    assert {"ready", "turns", "due", "unlucky", "held"} <= {node.index for node in nodes}, nodes
    assert not [node for node in nodes if node.kind == "Seq Scan" and node.table in BIG], nodes
    known = [node for node in nodes if node.index == "unlucky"]
    assert [node.kind for node in known] == ["Index Only Scan"] * 2, known
    assert all("status" in node.sought for node in known), known


async def test_the_load_is_counted_without_a_look_at_what_completed_before(cold: Connection, store: str) -> None:
    await cold.execute("SET enable_seqscan = off")  # as the engine does
    plan = await explain(cold, sql("load", store), ["1", "100", "100", "'{completed,failed}'", "0"])
    nodes = list(plan.all())
    assert {"ready", "turns", "due", "held", "finished"} <= {node.index for node in nodes}, nodes
    assert not [node for node in nodes if node.kind == "Seq Scan" and node.table in BIG], nodes
    read = {node.index: node.sought for node in nodes}
    assert "subqueue" in read["ready"], nodes
    assert "finished_at" in read["finished"], nodes


# What they cost


class Watched(Pool):
    """Statements as an engine makes them; for each claim, how many pages it touched."""

    def __init__(self, connection: Connection) -> None:
        super().__init__("", size=1, settings=HOT, pgbouncer=False)
        self.alone = connection
        self.pages = 0

    async def fetch(self, text: str, *args: Any, patience: float | None = None) -> list[Any]:
        if "claim_" in text or "SKIP LOCKED" in text:
            async with self.alone.transaction():
                plan = await explain(self.alone, text, [_literal(one) for one in args], run=True)
                self.pages = plan.buffers
                raise _Rollback
        return await self.alone.fetch(text, *args)


class _Rollback(Exception):
    """The claim was only tried."""


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "'{" + ",".join(map(str, value)) + "}'"
    return f"'{value}'"


async def pages(lab: Lab, schema: str, n: int, tasks: tuple[str, ...]) -> int:
    """How many pages a claim of jobs of these tasks touches; it is not committed."""
    connection = await asyncpg.connect(shared().url(), server_settings=HOT)
    watched = Watched(connection)
    profiles = frozenset(one.id for one in (await lab.engine.documents.profiles()).profiles if one.task in tasks)
    with pytest.raises(_Rollback):
        await Claiming(watched, schema, lab.rules).claim(
            await lab.worker(), ClaimRequest(n=n, free=n, profiles=profiles), 1, lab.now
        )
    await connection.close()
    assert watched.pages > 0
    return watched.pages


@pytest.mark.parametrize("tasks", [("mine",), ("mine", "mine too")], ids=["one line", "two lines"])
async def test_a_claim_touches_as_many_pages_on_a_full_table_as_on_an_empty_one(
    lab: Lab, schema: str, tasks: tuple[str, ...]
) -> None:
    await lab.put_all(*(lab.job("not mine", queue=f"q{at}") for at in range(3)))  # the lines of what is filled in
    jobs = await lab.put_all(*(lab.job(tasks[at % len(tasks)]) for at in range(200)))
    connection = await asyncpg.connect(shared().url())
    await connection.execute(
        f"UPDATE {schema}.jobs SET seq = seq + 1000000; UPDATE {schema}.bodies SET seq = seq + 1000000"
    )
    await connection.execute(f"VACUUM {schema}.jobs, {schema}.bodies")
    empty = await pages(lab, schema, 50, tasks)
    # History, and jobs of others that are ahead in line.
    await fill(connection, schema)
    await connection.execute(f"VACUUM {schema}.jobs, {schema}.bodies")
    full = await pages(lab, schema, 50, tasks)
    await connection.close()
    # Deeper trees, and no more than that.
    assert full < 1.5 * empty + 50, (empty, full)
    claimed = await lab.ask(await lab.worker(), 5, tasks=tasks)
    assert isinstance(claimed, Claimed)
    assert [job.id for job in claimed.jobs] == [job.id for job in jobs[:5]]


# Words and numbers


def test_the_only_words_for_statuses_in_sql_are_those_a_statement_cannot_be_given() -> None:
    words = {status.value for status in Status}
    for folder, allowed in {"sql": {"queued", "running", "completed"}, "migrations": set[str]()}.items():
        for file in (PACKAGE / folder).iterdir():
            text = re.sub(r"--[^\n]*", "", file.read_text(encoding="utf-8"))
            used = {word for word in re.findall(r"'(\w+)'", text) if word in words}
            assert used <= allowed, file.name


@pytest.mark.parametrize(
    ("index", "statuses"),
    {
        "ready": {Status.QUEUED},
        "due": DEFERRED,
        "held": HELD,
        "expiring": IDLE,
        "fragile": IDLE,
        "finished": ENDED,
    }.items(),
)
async def test_what_an_index_holds_are_the_sets_of_the_core(
    lab: Lab, schema: str, index: str, statuses: set[Status]
) -> None:
    connection = await asyncpg.connect(shared().url())
    condition = await connection.fetchval(
        "SELECT pg_get_expr(indpred, indrelid) FROM pg_index WHERE indexrelid = $1::text::regclass", f"{schema}.{index}"
    )
    rows = ", ".join(f"('{status.value}', {STAGES[status]}, 1, 1)" for status in Status)
    held = await connection.fetch(
        f"SELECT status FROM (VALUES {rows}) t (status, stage, act_by, unstarted_losses) WHERE {condition}"
    )
    await connection.close()
    assert {row["status"] for row in held} == set(statuses)


def test_the_stages_compared_with_in_sql_cut_where_the_sets_of_the_core_do() -> None:
    meant = {
        "< 3": IDLE,
        "< 4": frozenset(Status) - ENDED,
        ">= 4": ENDED,
        "= 0": {Status.PENDING, Status.WAITING},
        "= 1": DEFERRED,
        "= 2": {Status.QUEUED},
        "= 3": HELD,
        "= 4": {Status.COMPLETED},
    }
    signs = {"<": operator.lt, ">=": operator.ge, "=": operator.eq}
    for file in (PACKAGE / "sql").iterdir():
        text = re.sub(r"--[^\n]*", "", file.read_text(encoding="utf-8"))
        for sign, number in re.findall(r"\bstage (<|>=|=) (\d)", text):
            found = {status for status in Status if signs[sign](STAGES[status], int(number))}
            assert found == set(meant[f"{sign} {number}"]), file.name
