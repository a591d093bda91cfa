"""What the engine relies on in SQLite itself: each trap that was found is pinned here."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import apsw
import pytest

from headrace.conformance.lab import Lab
from headrace.core.defaults import Rules
from headrace.core.query import Filter
from headrace.core.status import DEFERRED, ENDED, HELD, IDLE, LIVE, Reason, Status
from headrace.engine.transactions import walk
from headrace.engines.sql.encoding import STAGES
from headrace.engines.sql.search.dialect import Asked, Asking
from headrace.engines.sqlite import SqliteEngine
from headrace.engines.sqlite.records import Finding
from headrace.engines.sqlite.records import prepare as prepare_reader
from headrace.engines.sqlite.store.connection import ask
from headrace.runtime.host import Host

PACKAGE = resources.files("headrace.engines.sqlite")


@pytest.fixture
def writer(file: Path) -> apsw.Connection:
    return SqliteEngine(file, rules=Rules(), host=Host())._connect_writer()


def plan(connection: apsw.Connection, statement: str) -> str:
    count = max((int(number) for number in re.findall(r"[?$](\d+)", statement)), default=0)
    rows = connection.execute("EXPLAIN QUERY PLAN " + statement, (None,) * count)
    return "\n".join(str(row[3]) for row in rows)


def trigger(connection: apsw.Connection, name: str, start: str) -> str:
    """One statement of a trigger's body, with bindings in place of its row."""
    body = str(connection.execute("SELECT sql FROM sqlite_temp_schema WHERE name = ?", (name,)).get)
    body = re.sub(r"--[^\n]*", "", body)
    found = next(part for part in body.partition("BEGIN")[2].split(";") if start in part)
    return re.sub(r"new\.\w+", "?1", found)


# Stages


@pytest.mark.parametrize(
    ("statuses", "fits"),
    [
        (IDLE - DEFERRED - {Status.QUEUED}, lambda stage: stage == 0),
        (DEFERRED, lambda stage: stage == 1),
        ({Status.QUEUED}, lambda stage: stage == 2),
        (HELD, lambda stage: stage == 3),
        (IDLE, lambda stage: stage < 3),
        (LIVE, lambda stage: stage < 4),
        (ENDED, lambda stage: stage >= 4),
        ({Status.COMPLETED}, lambda stage: stage == 4),
        (ENDED - {Status.COMPLETED}, lambda stage: stage == 5),
    ],
)
def test_the_stages_written_in_sql_are_the_sets_of_the_core(statuses: set[Status], fits: object) -> None:
    assert callable(fits)
    assert {status for status in Status if fits(STAGES[status])} == set(statuses)


def test_the_only_words_for_statuses_in_sql_are_those_a_statement_cannot_be_given() -> None:
    words = {status.value for status in Status}
    for file in (PACKAGE / "sql").iterdir():
        text = re.sub(r"--[^\n]*", "", file.read_text(encoding="utf-8"))
        used = {word for word in re.findall(r"'(\w+)'", text) if word in words}
        assert used <= {Status.QUEUED, Status.RUNNING}, file.name


# Plans


@pytest.mark.parametrize(
    ("verb", "uses"),
    [
        ("get", ["sqlite_autoindex_jobs_1 (id=?)"]),
        ("changed", ["sqlite_autoindex_jobs_1 (id=?)"]),
        ("promote", ["USING COVERING INDEX due (available_at<?)"]),
        ("overdue", ["USING INDEX held", "USING INDEX expiring (act_by<?)"]),
        ("beat_answer", ["USING INDEX held (worker=?)"]),
        ("unnamed", ["USING INDEX held (worker=?)"]),
        ("forget", ["USING COVERING INDEX held (worker=?)"]),
        ("workers", ["USING COVERING INDEX held (worker=?)"]),
        ("second_look", ["sqlite_autoindex_jobs_1 (id=?)", "USING COVERING INDEX keys (held_key=?)"]),
        ("known", ["sqlite_autoindex_jobs_1 (id=?)", "USING COVERING INDEX keys (held_key=?)"]),
        (
            "position",
            [
                "INDEX ready (subqueue=? AND (rank,arrived_at)<(?,?))",
                "INDEX turns (subqueue=? AND turn_key=? AND (rank,arrived_at)<(?,?))",
                "INDEX turns (subqueue=? AND turn_key>?)",
                "INDEX due (available_at<?)",
                "INDEX finished (status=? AND finished_at>?)",
            ],
        ),
        (
            "load",
            [
                "USING COVERING INDEX ready (subqueue=?)",
                "USING COVERING INDEX turns (subqueue=?)",
                "USING COVERING INDEX due (available_at<?)",
                "USING INDEX held",
                "INDEX finished (status=? AND finished_at>?)",
            ],
        ),
        ("relatives", ["sqlite_autoindex_jobs_1 (id=?)"]),
        ("cancelled_batches", ["sqlite_autoindex_batches_1 (id=?)"]),
        ("cancel_batch", ["sqlite_autoindex_batches_1 (id=?)"]),
        ("tie", ["SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("tally", ["sqlite_autoindex_batches_1 (id=?)"]),
        ("batches", ["sqlite_autoindex_batches_1 (id=?)"]),
        ("find_batches", ["USING INDEX batches_made ((created_at,id)<(?,?))"]),
        ("abandon", ["USING INDEX batches_open (touched_at<?)"]),
        ("over", ["SCAN batches USING INDEX batches_over"]),
        ("anything_noted", ["USING INDEX batches_open (touched_at<?)", "SCAN batches USING INDEX batches_over"]),
        ("concerned", ["waits_for (parent=? AND child>?)", "labelled (label=? AND seq>?)"]),
        ("parents", ["SEARCH w USING PRIMARY KEY (child=?)", "SEARCH p USING INTEGER PRIMARY KEY (rowid=?)"]),
        (
            "count_standing",
            [
                "SCAN jobs USING COVERING INDEX ready",
                "SCAN jobs USING COVERING INDEX turns",
                "USING COVERING INDEX due (available_at<?)",
                "SCAN jobs USING COVERING INDEX parked",
                "SCAN jobs USING INDEX held",
                "USING INDEX finished (status=?)",
            ],
        ),
        ("records", ["SEARCH j USING INTEGER PRIMARY KEY (rowid=?)"]),
        ("history", ["SEARCH a USING PRIMARY KEY (seq=?)", "USING INDEX events_of_job (seq=?)"]),
    ],
)
@pytest.mark.parametrize("analyzed", [False, True], ids=["never analyzed", "analyzed while empty"])
def test_a_verb_looks_things_up_by_index(writer: apsw.Connection, verb: str, uses: list[str], analyzed: bool) -> None:
    if analyzed:
        writer.execute("ANALYZE")
    found = plan(writer, ask(verb))
    for index in uses:
        assert index in found, found
    assert not re.search(r"SCAN (jobs|j|bodies|b|ends|attempts|labels|batches)$", found, re.MULTILINE), found
    if verb == "concerned":  # a page of it is not the result of sorting all there is
        assert "TEMP B-TREE" not in found, found


@pytest.mark.parametrize(
    ("start", "uses"),
    [
        ("SET status = 'queued'", ["INDEX due (available_at<?)"]),
        ("j.claim =", ["USING INDEX held (worker=? AND claim=?)"]),
        ("WITH RECURSIVE hop", ["INDEX ready (subqueue>?)", "SEARCH served USING PRIMARY KEY (ask=? AND subqueue>?)"]),
        ("FROM jobs\n  WHERE stage = 2", ["USING INDEX ready (subqueue=?)", "USING INDEX expiring (act_by<?)"]),
        (
            "WITH RECURSIVE merged",
            [
                "ready (subqueue=? AND rank=? AND arrived_at=? AND seq>?)",
                "ready (subqueue=? AND rank=? AND arrived_at>?)",
            ],
        ),
        ("SET status = ?1", ["SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)"]),
    ],
)
def test_every_step_of_a_claim_goes_by_index(writer: apsw.Connection, start: str, uses: list[str]) -> None:
    statement = trigger(writer, "claiming", start.replace("?1", "new.status"))
    found = plan(writer, statement)
    for index in uses:
        assert index in found, found
    assert not re.search(r"SCAN (jobs|j)$", found, re.MULTILINE), found
    assert "TEMP B-TREE" not in found or start == "j.claim =", found  # a repeat is sorted, and small


def test_deleting_goes_by_the_index_of_the_ended(writer: apsw.Connection) -> None:
    found = plan(writer, trigger(writer, "prune", "INSERT INTO old"))
    assert "INDEX finished (status=? AND finished_at>? AND finished_at<?)" in found
    assert "INDEX waits_for (parent=?)" in found
    own = plan(writer, trigger(writer, "prune", "j.keep IS NOT NULL"))
    assert "INDEX outlived (<expr><?)" in own
    assert "SCAN j\n" not in own
    assert "INDEX batches_settled" in plan(writer, trigger(writer, "prune", "DELETE FROM batches"))


T = TypeVar("T")
SOME, ID, NOW = frozenset({"x"}), UUID(int=1), datetime(2030, 1, 1, tzinfo=UTC)


class Planned(Finding):
    """Keeps the plans of what it is asked, and answers that there is much of everything."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self._connection, self.plans = connection, dict[str, str]()

    async def answer(self, begin: Callable[[], Asking[T]]) -> T:
        return walk(begin(), self._plan)

    def _plan(self, asked: Asked) -> list[Any]:
        text, values = asked
        rows = self._connection.execute("EXPLAIN QUERY PLAN " + text, (None,) * len(values))
        self.plans[text] = "\n".join(str(row[3]) for row in rows)
        return [] if "record" in text else [(5000,)] if "count(*)" in text or "OFFSET" in text else [(1,), (2,)]


@pytest.mark.parametrize(
    ("filter", "uses"),
    [
        (Filter(status=frozenset({Status.QUEUED})), ["INDEX ready", "INDEX turns", "INDEX due"]),
        (Filter(status=frozenset({Status.WAITING})), ["INDEX parked"]),
        (Filter(status=frozenset({Status.RUNNING})), ["INDEX held"]),
        (Filter(status=frozenset({Status.FAILED})), ["INDEX unlucky (status=?"]),
        (Filter(reason=frozenset({Reason.TIMEOUT, Reason.LOST})), ["INDEX reasons (<expr>=?"]),
        (Filter(fingerprint=SOME), ["INDEX fingerprints (<expr>=?"]),
        (Filter(suspect=True), ["INDEX suspects"]),
        (Filter(worker=frozenset({ID})), ["INDEX held (worker=?)"]),
        (Filter(customer=SOME), ["INDEX labelled (label=?"]),
        (Filter(rerun_of=ID), ["INDEX labelled (label=?"]),
        (Filter(tag="x"), ["INDEX labelled (label=?"]),
        (Filter(task=SOME), ["subqueue_blocks", "x USING PRIMARY KEY (subqueue=? AND block<?)"]),
        (Filter(created_before=NOW), ["x USING PRIMARY KEY (block<?)"]),
        (Filter(finished_before=NOW), ["INDEX finished (status=? AND finished_at<?)"]),
    ],
)
@pytest.mark.parametrize("analyzed", [False, True], ids=["never analyzed", "analyzed while empty"])
async def test_a_search_goes_by_index(writer: apsw.Connection, filter: Filter, uses: list[str], analyzed: bool) -> None:
    if analyzed:
        writer.execute("ANALYZE")
    prepare_reader(writer)
    finder = Planned(writer)
    await finder.find(filter, NOW, 50, None)
    together = "\n".join(f"{text}\n{plan}" for text, plan in finder.plans.items())
    for index in uses:
        assert index in together, together
    assert not re.search(r"SCAN (jobs|[xj])$", together, re.MULTILINE), together
    # The few that are not in order are not looked for by number among all jobs.
    assert not re.search(r"SEARCH x USING INTEGER PRIMARY KEY", together), together
    # What an index has in order is not sorted.
    for text, plan in finder.plans.items():
        assert "TEMP B-TREE" not in plan or "OFFSET" in text or "json_each" in text, (text, plan)


# Traps


async def test_returning_is_worked_out_after_the_trigger() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t (x); CREATE TEMP VIEW v AS SELECT NULL AS x")
    connection.execute("CREATE TEMP TRIGGER g INSTEAD OF INSERT ON v BEGIN INSERT INTO t VALUES (new.x); END")
    assert connection.execute("INSERT INTO v VALUES (7) RETURNING (SELECT count(*) FROM t)").get == 1


async def test_raise_ignore_leaves_out_one_row_and_goes_on() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t (x); CREATE TEMP VIEW v AS SELECT NULL AS x")
    connection.execute(
        "CREATE TEMP TRIGGER g INSTEAD OF INSERT ON v BEGIN"
        " SELECT raise(IGNORE) WHERE new.x = 2; INSERT INTO t VALUES (new.x); END"
    )
    connection.execute("INSERT INTO v SELECT value FROM json_each('[1, 2, 3]')")
    assert connection.execute("SELECT x FROM t").fetchall() == [(1,), (3,)]


async def test_changes_counts_the_last_statement_of_the_trigger_it_is_asked_in() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t (x); CREATE TABLE u (x); CREATE TEMP VIEW v AS SELECT NULL AS x")
    connection.execute(
        "CREATE TEMP TRIGGER g INSTEAD OF INSERT ON v BEGIN"
        " INSERT INTO u SELECT new.x WHERE new.x = 2; SELECT raise(IGNORE) WHERE changes() = 1;"
        " INSERT INTO t VALUES (new.x); END"
    )
    connection.execute("INSERT INTO v SELECT value FROM json_each('[1, 2, 3]')")
    assert connection.execute("SELECT x FROM t").fetchall() == [(1,), (3,)]


@pytest.mark.parametrize(("limit", "again"), [("?1", True), ("?1 + 0", False)])
def test_a_bare_parameter_behind_limit_has_the_statement_compiled_anew(limit: str, again: bool) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t (x)")
    compiled = 0

    def look(*what: object) -> int:
        nonlocal compiled
        compiled += 1
        return apsw.SQLITE_OK

    connection.authorizer = look
    seen = []
    for n in (3, 4):
        compiled = 0
        connection.execute(f"SELECT x FROM t LIMIT {limit}", (n,)).fetchall()
        seen.append(compiled > 0)
    assert seen == [True, again]


def test_no_statement_has_a_bare_parameter_behind_limit() -> None:
    for file in (PACKAGE / "sql").iterdir():
        assert not re.search(r"LIMIT \?\d+\b(?! \+ [01])", file.read_text(encoding="utf-8")), file.name


async def test_jobs_are_given_in_the_order_they_were_picked(lab: Lab) -> None:
    jobs = [await lab.put(f"task{at % 3}", priority=at * 7 % 10) for at in range(40)]
    given = await lab.claim(await lab.worker(), 25)
    assert [job.id for job in given] == [job.id for job in sorted(jobs, key=lambda job: (-job.priority, job.seq))[:25]]


async def test_no_read_or_write_leaves_a_transaction_open(lab: Lab, file: Path) -> None:
    worker = await lab.worker()
    await lab.put()
    await lab.claim(worker)
    assert isinstance(lab.engine, SqliteEngine)
    for thread in (lab.engine._writer, lab.engine._reader):
        assert not await thread.run(lambda connection: connection.in_transaction or connection.txn_state())
