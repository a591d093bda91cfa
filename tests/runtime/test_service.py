"""Start and stop, written once, survive being hammered."""

from __future__ import annotations

import asyncio

import pytest

from headrace.runtime.service import Service


class Ticking(Service):
    """Runs until told to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    async def main(self) -> None:
        """Count a run and wait."""
        self.runs += 1
        await self.stopping.wait()


class Broken(Service):
    """Fails at once."""

    async def main(self) -> None:
        """Fail."""
        raise ZeroDivisionError


async def test_it_runs_between_start_and_stop_and_may_start_again() -> None:
    service = Ticking()
    for _ in range(3):
        async with service:
            await asyncio.sleep(0)
    assert service.runs == 3


async def test_starting_and_stopping_twice_changes_nothing() -> None:
    service = Ticking()
    await service.stop()
    await service.start()
    await service.start()
    await asyncio.sleep(0)
    await asyncio.gather(service.stop(), service.stop())
    assert service.runs == 1


async def test_what_main_raised_reaches_stop() -> None:
    service = Broken()
    await service.start()
    with pytest.raises(ZeroDivisionError):
        await service.stop()


async def test_a_caller_that_gives_up_waiting_does_not_cancel_the_service() -> None:
    service = Ticking()
    await service.start()
    await asyncio.sleep(0)
    waiter = asyncio.create_task(service.done())
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert not service.stopping.is_set()
    await service.stop()


async def test_it_survives_being_hammered() -> None:
    service = Ticking()
    for _ in range(50):
        await asyncio.gather(*(act() for _ in range(5) for act in (service.start, service.stop)))
        await service.stop()
    assert service.runs >= 50
    async with service:
        await asyncio.sleep(0)
        assert not service.stopping.is_set()


async def test_a_stop_asked_for_before_the_start_still_counts() -> None:
    service = Ticking()
    service.stopping.set()
    await service.start()
    await asyncio.wait_for(service.done(), 45)
    assert service.runs == 1


async def test_what_broke_down_may_start_again() -> None:
    service = Broken()
    for _ in range(2):
        await service.start()
        with pytest.raises(ZeroDivisionError):
            await service.stop()


async def test_work_is_left_undone_when_a_stop_comes_first() -> None:
    service, ended = Ticking(), []

    async def work(seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            ended.append(seconds)

    assert await service.unless_stopped(work(0))
    service.stopping.set()
    assert not await service.unless_stopped(work(60))
    assert ended == [0, 60]
