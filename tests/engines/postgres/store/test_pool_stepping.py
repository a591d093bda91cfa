"""A coroutine without a task: its result, its error, and that nobody can stop it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from headrace.engines.postgres.store.pool import step_through
from tests.support.until import until


async def test_it_goes_on_whenever_what_it_waits_for_is_there() -> None:
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    ends: list[tuple[Any, BaseException | None]] = []

    async def add() -> int:
        return int(await first) + int(await second)

    step_through(add(), lambda *end: ends.append(end))
    assert asyncio.all_tasks() == {asyncio.current_task()}
    first.set_result(1)
    await asyncio.sleep(0)
    assert ends == []
    second.set_result(2)
    await until(lambda: ends)
    assert ends == [(3, None)]


async def test_what_needs_no_wait_is_over_at_once() -> None:
    ends: list[tuple[Any, BaseException | None]] = []

    async def at_once(error: Exception | None = None) -> str:
        if error is not None:
            raise error
        return "done"

    broken = ZeroDivisionError()
    step_through(at_once(), lambda *end: ends.append(end))
    step_through(at_once(broken), lambda *end: ends.append(end))
    assert ends == [("done", None), (None, broken)]


async def test_an_error_of_what_it_waits_for_is_raised_within_it() -> None:
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ends: list[tuple[Any, BaseException | None]] = []

    async def careful() -> str:
        try:
            await waited
        except ConnectionError:
            return "caught"
        return "nothing to catch"

    step_through(careful(), lambda *end: ends.append(end))
    waited.set_exception(ConnectionError())
    await until(lambda: ends)
    assert ends == [("caught", None)]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_an_interrupt_is_raised_and_told_to_whoever_waits(kind: type[BaseException]) -> None:
    ends: list[tuple[Any, BaseException | None]] = []

    async def interrupted() -> None:
        raise kind

    with pytest.raises(kind):
        step_through(interrupted(), lambda *end: ends.append(end))
    [(_, error)] = ends
    assert type(error) is kind


async def test_nothing_of_it_is_left_to_the_garbage_collector() -> None:
    class Kept:
        """What a statement needed."""

    loop, ends = asyncio.get_running_loop(), list[Any]()

    def begin() -> tuple[asyncio.Future[None], weakref.ref[Kept]]:
        kept, waited = Kept(), loop.create_future()

        async def wait() -> Kept:
            await waited
            return kept

        step_through(wait(), lambda result, error: ends.append(type(result)))
        return waited, weakref.ref(kept)

    gc.disable()
    try:
        waited, kept = begin()
        waited.set_result(None)
        await until(lambda: ends)
        await asyncio.sleep(0)  # the loop lets go of what it has just called
        assert (ends, kept()) == ([Kept], None)
    finally:
        gc.enable()
