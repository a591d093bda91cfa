"""Programs that have duties and are no workers: their death is proved like that of a worker."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from headrace import App
from headrace.core.lifecycle.duty import HOLDER
from headrace.engine import Attended
from headrace.maintenance import Attendance, Planner, Pruner, Sweeper, services
from headrace.maintenance.attendance import programs_of
from headrace.maintenance.duty import Duty
from tests.maintenance.test_liveness import Scene, scene
from tests.support.apps import url_of
from tests.support.until import until

NAMES = [f"duty:{kind.name}" for kind in (Sweeper, Pruner, Planner)]


@asynccontextmanager
async def attending(s: Scene, proof: str = "held") -> AsyncIterator[tuple[Attendance, UUID, list[Duty]]]:
    """A program that has all duties, for which something is held."""
    w = s.w
    proofs = {"now": proof}

    async def attend(worker: UUID) -> Attended | None:
        return Attended(proofs["now"])

    s.workers.attend = attend  # type: ignore[method-assign]
    id = w.host.dice.new_id(w.now)
    attendance = Attendance(w.engine, w.host, id)
    await attendance._attend()
    made = services(w.engine, w.writer, w.host, id, follow=False, worker=False)
    duties = [one for one in made if isinstance(one, Duty)]
    for duty in duties:
        assert await duty.elector.leads()
    yield attendance, id, duties


async def held_by(s: Scene) -> set[UUID | None]:
    return {await s.w.engine.documents.holder(name, s.w.now) for name in NAMES}


async def test_who_stands_by_takes_the_duties_of_a_program_that_died(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s, attending(s) as (_, program, theirs):
        keeper = await s.worker()
        sweeper, duties = s.duties(keeper)
        for _ in range(3):  # it renews its leases as long as it lives
            await s.run(2, *duties)
            for duty in theirs:
                duty.elector.hurry()
                assert await duty.elector.leads()
        s.workers.free.add(program)
        for duty in theirs:  # and they are taken although they have not ended
            duty.elector.seconds = 100.0
            duty.elector.hurry()
            assert await duty.elector.leads()
        await s.run(4.2, *duties)
        assert await held_by(s) == {keeper.id}
        assert sweeper.elector.token is not None
        assert "is dead: its process has ended; its duties are free" in caplog.text
        assert await programs_of(s.w.engine) == {}, "nothing is left of it"


async def test_a_worker_that_died_with_it_is_buried_at_the_same_time() -> None:
    async with scene() as s, attending(s) as (_, program, theirs):
        keeper, victim = await s.worker(), await s.worker()
        _, duties = s.duties(keeper)
        for duty in theirs:
            duty.elector.seconds = 100.0
            duty.elector.hurry()
            assert await duty.elector.leads()
        await s.run(2, *duties)
        s.workers.free |= {program, victim.id}
        await s.run(4.2, *duties)
        assert await s.w.alive() == {keeper.id}


async def test_what_another_than_the_sweeper_had_is_taken_too() -> None:
    async with scene() as s, attending(s) as (_, program, theirs):
        keeper = await s.worker()
        _, duties = s.duties(keeper)
        await theirs[0].elector.resign()
        for duty in theirs[1:]:
            duty.elector.seconds = 100.0
            duty.elector.hurry()
            assert await duty.elector.leads()
        await s.run(3, *duties)
        assert await held_by(s) == {keeper.id, program}
        s.workers.free.add(program)
        await s.run(4.2, *duties)
        assert await held_by(s) == {keeper.id}


async def test_one_that_holds_something_new_is_not_dead() -> None:
    async with scene() as s, attending(s) as (attendance, program, _):
        keeper = await s.worker()
        sweeper, _ = s.duties(keeper)
        [found] = (await programs_of(s.w.engine)).values()

        async def attend(worker: UUID) -> Attended | None:
            return Attended("another")

        s.workers.attend = attend  # type: ignore[method-assign]
        await attendance._attend()
        assert not await found.bury(s.w.engine), "it has said something since"
        assert await held_by(s) == {program}
        [now] = (await programs_of(s.w.engine)).values()
        assert now.row.proof == "another"
        await sweeper.stop()


async def test_one_that_was_taken_for_dead_says_again_that_it_lives() -> None:
    async with scene() as s, attending(s) as (attendance, program, _):
        [found] = (await programs_of(s.w.engine)).values()
        assert await found.bury(s.w.engine)
        s.w.clock.advance(s.w.engine.rules.lease)
        await attendance._attend()
        assert set(await programs_of(s.w.engine)) == {program}


async def test_what_cannot_be_read_is_left_alone() -> None:
    async with scene() as s:
        await s.w.engine.documents.put_setting(f"{HOLDER}nonsense", "{}", 0)
        assert await programs_of(s.w.engine) == {}


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
@pytest.mark.every_engine
async def test_it_is_known_while_the_block_lasts(engine: str, tmp_path: Path) -> None:
    async with App(url_of(engine, tmp_path)) as app:
        async with app.maintenance() as maintenance:

            async def known() -> bool:
                return bool(await programs_of(app.session.engine))

            await until(known)
            [program] = (await programs_of(app.session.engine)).values()
            assert (await app.session.engine.workers.gone([program.row])).workers == frozenset()
            assert maintenance.alive
        assert await programs_of(app.session.engine) == {}
        assert await app.workers.list() == []
    assert not [name for name in os.listdir(tmp_path) if name.endswith("-workers")]
