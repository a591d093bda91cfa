"""Claims where keys take turns: where each key stands is known at any time, and costs what is asked for."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import apsw
import pytest

from headrace.conformance.jobs.key_rotation import crowd, story
from headrace.conformance.jobs.limits import fill, free, keys, rule
from headrace.conformance.lab import Lab
from headrace.core.status import ENDED
from headrace.engines.sqlite import SqliteEngine
from headrace.engines.sqlite.store.connection import ask
from tests.engines.sqlite.test_engine_traps import plan

FIRST = """
SELECT p.task, j.turn_key, j.subqueue, j.rank, j.arrived_at, j.seq
FROM (SELECT *, row_number() OVER (PARTITION BY subqueue, turn_key ORDER BY rank, arrived_at, seq) AS place
      FROM jobs WHERE stage = -1) j
JOIN subqueues l ON l.id = j.subqueue JOIN profiles p ON p.id = l.profile
WHERE j.place = 1 ORDER BY 1, 2, 3"""
HEADS = "SELECT task, key, subqueue, rank, arrived_at, seq FROM heads WHERE rank IS NOT NULL ORDER BY 1, 2, 3"

STATEMENTS: dict[str, tuple[Any, ...]] = {
    "rest_of_subqueue": (1, 2, 3, 4),
    "rest_of_key": (1, "a", 2, 3, 4),
    "heads": (1,),
    "served": (1,),
    "occupied": (1,),
    "usage": (),
    "give": ("[1]", "accepted", b"w", 1, 2, 3, 4),
    "given": ("[1]",),
    "again": (b"w", 1),
    "turn": ('[["a", "b"]]', 1),
}

INDEXED = {
    "rest_of_subqueue": "INDEX ready (subqueue=? AND (rank,arrived_at)>(?,?))",
    "rest_of_key": "INDEX turns (subqueue=? AND turn_key=? AND (rank,arrived_at)>(?,?))",
    "heads": "INDEX heads_in_subqueue (subqueue=? AND rank>?)",
    "turn": "PRIMARY KEY (task=? AND key=?)",
}


def engine(lab: Lab) -> SqliteEngine:
    assert isinstance(lab.engine, SqliteEngine)
    return lab.engine


async def rows(lab: Lab, text: str) -> list[Any]:
    """What the store says."""
    return await engine(lab)._writer.run(lambda connection: connection.execute(text).fetchall())


async def steps(lab: Lab, n: int, **options: Any) -> int:
    """What a claim of so many costs, in tens of steps of SQLite's machine."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    worker = await lab.worker()
    await engine(lab)._writer.run(lambda connection: connection.set_progress_handler(step, 10))
    assert len(await lab.claim(worker, n, **options)) == n
    await engine(lab)._writer.run(lambda connection: connection.set_progress_handler(None, 10))
    return count


# Upkeep


@pytest.mark.parametrize("seed", range(6))
async def test_each_key_stands_where_its_first_job_does(lab: Lab, seed: int) -> None:
    await story(lab, seed)
    assert await rows(lab, HEADS) == await rows(lab, FIRST) != []


async def test_all_lines_of_a_task_know_of_a_turn(lab: Lab) -> None:
    worker = await lab.worker()
    await fill(lab, 1, queue="here", concurrency_key="a")
    await fill(lab, 1, queue="there", concurrency_key="a")
    await fill(lab, 1, "other", concurrency_key="a")
    assert len(await lab.claim(worker, 1, queues=("here",))) == 1
    await fill(lab, 1, queue="everywhere", concurrency_key="a")
    turns = await rows(lab, "SELECT task, last > 0, count(*) FROM heads GROUP BY 1, 2 ORDER BY 1")
    assert turns == [("other", 0, 1), ("work", 1, 3)]


# What is forgotten


async def test_a_turn_is_forgotten_with_the_job_that_had_it(lab: Lab) -> None:
    worker = await lab.worker()
    for queue in ("here", "there"):
        await fill(lab, 2, queue=queue, concurrency_key="a")
    await lab.cancel((await fill(lab, 1, concurrency_key="never given"))[0])
    await free(lab, *await lab.claim(worker, 3))
    assert await rows(lab, "SELECT key, count(*) FROM heads GROUP BY 1") == [("a", 2), ("never given", 1)]

    async def prune() -> list[Any]:
        await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now - timedelta(hours=1)))
        return await rows(lab, "SELECT key, rank IS NULL FROM heads ORDER BY 1, 2")

    assert await prune() == [("a", 0), ("a", 1), ("never given", 1)]
    lab.later(3600)
    # One is in line still; it is the only one of its key, wherever else that had jobs.
    assert await prune() == [("a", 0)]
    await free(lab, *await lab.claim(worker))
    lab.later(1800)
    assert await prune() == [("a", 1)]
    lab.later(1800)
    assert await prune() == []


async def test_a_key_goes_with_the_line_it_stood_in(lab: Lab) -> None:
    await fill(lab, 1, queue="stays", concurrency_key="a")
    await fill(lab, 1, queue="goes", concurrency_key="a")
    collect = ask("collect")

    def empty(connection: apsw.Connection) -> None:
        connection.execute("DELETE FROM jobs WHERE subqueue = (SELECT id FROM subqueues WHERE queue = 'goes')")
        connection.execute(collect)

    await engine(lab)._writer.run(empty)
    assert await rows(lab, "SELECT l.queue FROM heads h LEFT JOIN subqueues l ON l.id = h.subqueue") == [("stays",)]


# What it costs


async def test_a_claim_costs_the_same_however_many_keys_wait(lab: Lab) -> None:
    await rule(lab, "limit:work", max_per_key=1)
    await crowd(lab, range(40))
    await steps(lab, 10)  # finds out which lines there are
    before = await steps(lab, 10)
    for at in range(0, 900, 300):
        await crowd(lab, range(40 + at, 340 + at))
    # What is held is counted, and there is a little more of it; the trees are deeper.
    assert await steps(lab, 10) < before * 1.3


async def test_a_claim_costs_the_same_however_much_a_key_has_in_line(lab: Lab) -> None:
    await rule(lab, "limit:work", max_per_key=1)
    await crowd(lab, range(60))
    await steps(lab, 10)
    before = await steps(lab, 10)
    for _ in range(3):
        await fill(lab, 1000, concurrency_key="noisy")
    assert await steps(lab, 10) < before * 1.3


async def test_keys_that_are_full_cost_little(lab: Lab) -> None:
    await rule(lab, "limit:work", max_per_key=1)
    worker = await lab.worker()
    await crowd(lab, range(200))
    assert len(await lab.claim(worker)) == 200
    lab.later(1)
    await crowd(lab, range(200, 300))
    await steps(lab, 10)
    before = await steps(lab, 10)
    lab.later(-1)
    await crowd(lab, range(200))  # in front of those, and none of them may be given
    lab.later(1)
    assert await steps(lab, 10) < before * 2
    assert keys(await lab.claim(worker, 1)) != []


# Statements


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_statement_goes_by_index_and_is_compiled_once(lab: Lab, name: str) -> None:
    text, terms = ask(name), STATEMENTS[name]
    compiled = 0

    def look(*what: object) -> int:
        nonlocal compiled
        compiled += 1
        return apsw.SQLITE_OK

    def run(connection: apsw.Connection) -> tuple[str, list[bool]]:
        nonlocal compiled
        found, seen = plan(connection, text.replace("?", "?1") if "?1" not in text else text), list[bool]()
        connection.authorizer = look
        for _ in range(3):
            compiled = 0
            connection.execute(text, terms).fetchall()
            seen.append(compiled > 0)
        connection.authorizer = None
        return found, seen

    found, seen = await engine(lab)._writer.run(run)
    assert seen == [True, False, False]
    assert not re.search(r"SCAN (jobs|heads|j|l|p)$", found, re.MULTILINE), found
    if name in INDEXED:  # read from the front, and no further than wanted
        assert (INDEXED[name] in found, "TEMP B-TREE" in found) == (True, False), found


async def test_keys_are_forgotten_by_key(lab: Lab) -> None:
    text = str(dict(await rows(lab, "SELECT name, sql FROM sqlite_temp_schema WHERE type = 'trigger'"))["prune"])
    [part] = [part for part in text.split(";") if "DELETE FROM heads" in part]
    found = await engine(lab)._writer.run(
        lambda connection: plan(connection, part[part.index("DELETE FROM heads") :].replace("new.before", "?1"))
    )
    assert "SEARCH heads USING PRIMARY KEY (task=? AND key=?)" in found, found


@pytest.mark.parametrize("name", ["heads_of_new", "heads_of_changed"])
async def test_the_upkeep_goes_by_index(lab: Lab, name: str) -> None:
    [(text,)] = await rows(lab, f"SELECT sql FROM sqlite_schema WHERE name = '{name}'")
    body = re.sub(r"(new|old)\.\w+", "?1", text[text.index("INSERT INTO heads") : text.rindex(";")])
    found = await engine(lab)._writer.run(lambda connection: plan(connection, body))
    assert "SEARCH heads USING PRIMARY KEY (task=? AND key=?)" in found, found
    assert not re.search(r"SCAN|TEMP B-TREE", found), found
