"""The duties together, as a worker runs them."""

from __future__ import annotations

from headrace.maintenance import Follower, Planner, Pruner, Sweeper, services
from tests.support.world import world


async def test_a_worker_is_given_every_duty() -> None:
    async with world() as w:
        made = services(w.engine, w.writer, w.host, w.holder(), w.engine.rules.retention)
        assert [type(one) for one in made] == [Sweeper, Pruner, Planner, Follower]
        alone = services(w.engine, w.writer, w.host, w.holder(), follow=False)
        assert [type(one) for one in alone] == [Sweeper, Pruner, Planner]


async def test_the_duties_start_and_stop() -> None:
    async with world() as w:
        holder = w.holder()
        made = services(w.engine, w.writer, w.host, holder)
        for one in made:
            await one.start()
        for one in made:
            await one.stop()
        for name in ("sweeper", "pruner", "planner"):
            assert await w.engine.documents.lease(f"duty:{name}", w.holder(), 1, w.now) is not None
