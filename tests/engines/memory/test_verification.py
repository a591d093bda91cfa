"""Books of a memory store that somebody broke by hand are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import Lab
from headrace.core.change import BatchTally
from headrace.core.defaults import Rules
from headrace.core.status import Status
from headrace.engines.memory import MemoryEngine
from headrace.engines.memory.state import State
from headrace.runtime.clock import SystemDice
from headrace.runtime.host import Host
from tests.support.broken_books import books, furnish


def _recount(state: State) -> None:
    for id, batch in state.relations.batches.items():
        state.relations.batches[id] = replace(batch, tally=batch.tally.plus(BatchTally(total=1)))


def _confuse(state: State) -> None:
    """As many live ones as it counts, and as many ended ones, but others."""
    for id, batch in state.relations.batches.items():
        state.relations.batches[id] = replace(batch, tally=batch.tally.plus(BatchTally(failed=1)))
        member = next(job for job in state.table.records.values() if job.spec.batch == id and not job.ended)
        state.table.records[member.id] = replace(member, status=Status.COMPLETED)


def _orphan(state: State) -> None:
    live = next(job for job in state.table.records.values() if job.status is Status.QUEUED)
    state.table.events[live.id] = []
    del state.table.records[live.id]


def _end_parents(state: State) -> None:
    for id, job in state.table.records.items():
        if job.task == "first":
            state.table.records[id] = replace(job, status=Status.COMPLETED)


@pytest.mark.parametrize(
    ("book", "break_it"),
    [
        ("parts", _orphan),
        ("keys", lambda state: state.table.keys.clear()),
        ("lines", lambda state: state.table.lines.clear()),
        ("held", lambda state: state.workers.clear()),
        ("held", lambda state: state.table.held.clear()),
        ("attempts", lambda state: state.table.attempts.clear()),
        ("waits", _end_parents),
        ("batches", _recount),
        ("batches", _confuse),
        ("ledger", lambda state: state.table.records.clear()),
    ],
)
async def test_a_broken_book_is_found(book: str, break_it: Callable[[State], object]) -> None:
    host, rules = Host(dice=SystemDice(7)), Rules()
    lab = Lab(lambda: MemoryEngine(rules, host), host, rules)
    await lab.engine.open()
    await furnish(lab)
    assert [one for one in (await books(lab)).values() if one.wrong] == []
    assert isinstance(lab.engine, MemoryEngine)
    with lab.engine._session.state() as state:
        break_it(state)
    assert (await books(lab))[book].findings
    await lab.engine.close()
