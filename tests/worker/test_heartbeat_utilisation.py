"""How much of a worker is used, as its beats tell, on every engine."""

from __future__ import annotations

import asyncio

from headrace.core.lifecycle.retry import Retry
from headrace.core.stats.utilisation import Utilisation
from headrace.core.status import Status
from tests.support.shop import Shop
from tests.support.until import until


async def told(shop: Shop) -> Utilisation:
    """What the store knows of the living worker."""
    [row] = [row for row in await shop.engine.workers.list() if row.alive]
    return row.beat.utilisation


async def test_beats_tell_how_much_of_a_worker_is_used(shop: Shop) -> None:
    gate = asyncio.Event()

    async def waits() -> None:
        await gate.wait()

    async def fails() -> None:
        raise ValueError("no")

    shop.task(waits)
    shop.task(fails)
    worker = shop.worker(concurrency=2)
    running = asyncio.create_task(worker.run())
    try:
        await until(lambda: worker.stats.state == "running")
        before = await told(shop)
        assert (before.failed, before.claimed_at) == (0, None)
        failed = await shop.submit("fails", retry=Retry(0))
        await shop.ended(failed)
        id = await shop.submit("waits")
        await shop.reaches(id, Status.RUNNING)

        async def half_busy() -> bool:
            now = await told(shop)
            return now.busy_share is not None and 0 < now.busy_share <= 0.5 and now.failed == 1

        await until(half_busy)
        now = await told(shop)
        assert now.busy_share_ever is not None
        assert 0 < now.busy_share_ever <= 0.5
        assert now.claimed_at is not None
        assert (await shop.get(failed)).created_at <= now.claimed_at
        assert now.memory is not None
        assert 10**7 < now.memory < 10**11
    finally:
        gate.set()
        worker.request_stop()
        await running
