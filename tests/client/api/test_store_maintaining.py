"""Maintenance beside a program that is not a worker, and who goes on when it dies."""

from __future__ import annotations

from functools import partial

import pytest

from headrace import App
from headrace.maintenance import Planner, Pruner, Sweeper, services
from headrace.maintenance.duty import BRIEF_LEASE_SECONDS, Duty
from tests.support.until import until
from tests.support.world import World, world


async def test_the_duties_are_held_while_the_block_lasts() -> None:
    async with App("memory://") as app:
        documents, clock = app.session.engine.documents, app.host.clock
        async with app.maintenance() as maintenance:
            alive = [maintenance.alive]
            for name in ("sweeper", "planner", "pruner"):
                await until(partial(documents.holder, f"duty:{name}", clock.now()))
        assert [*alive, maintenance.alive] == [True, False]
        for name in ("sweeper", "planner", "pruner"):
            assert await documents.holder(f"duty:{name}", clock.now()) is None
        assert await app.workers.list() == [], "it is no worker"


def of(w: World, *, worker: bool) -> dict[type, Duty]:
    made = services(w.engine, w.writer, w.host, w.holder(), follow=False, worker=worker)
    return {type(one): one for one in made if isinstance(one, Duty)}


DUTIES = (Sweeper, Planner, Pruner)


@pytest.mark.parametrize("kind", DUTIES)
async def test_the_duty_of_one_that_died_is_free_within_seconds(kind: type[Duty]) -> None:
    async with world() as w:
        assert await of(w, worker=False)[kind].elector.leads()
        other = of(w, worker=False)[kind].elector
        assert not await other.leads()
        w.clock.advance(BRIEF_LEASE_SECONDS)
        assert await other.leads()


@pytest.mark.parametrize("kind", DUTIES)
async def test_a_worker_that_stands_by_asks_as_often_as_such_a_lease_ends(kind: type[Duty]) -> None:
    async with world() as w:
        assert await of(w, worker=False)[kind].elector.leads()
        worker = of(w, worker=True)[kind].elector
        assert not await worker.leads()
        assert worker.asks_in <= BRIEF_LEASE_SECONDS
        w.clock.advance(BRIEF_LEASE_SECONDS)
        assert await worker.leads()


@pytest.mark.parametrize("kind", DUTIES)
async def test_a_worker_that_stands_by_for_a_worker_does_not(kind: type[Duty]) -> None:
    async with world() as w:
        assert await of(w, worker=True)[kind].elector.leads()
        worker = of(w, worker=True)[kind].elector
        assert not await worker.leads()
        assert worker.asks_in > BRIEF_LEASE_SECONDS


@pytest.mark.parametrize("kind", DUTIES)
async def test_what_a_worker_has_is_not_taken_for_void(kind: type[Duty]) -> None:
    """Its lease ends later than one that is taken briefly can, and is as good."""
    async with world() as w:
        worker, brief = of(w, worker=True)[kind].elector, of(w, worker=False)[kind].elector
        assert await worker.leads()
        assert not await brief.leads()
        w.clock.advance(worker.seconds * 0.6)
        assert await worker.leads()
        assert not await brief.leads()


async def test_it_is_renewed_before_it_ends() -> None:
    async with world() as w:
        one, other = of(w, worker=False)[Planner].elector, of(w, worker=False)[Planner].elector
        for _ in range(10):
            assert await one.leads()
            assert not await other.leads()
            w.clock.advance(one.asks_in)
