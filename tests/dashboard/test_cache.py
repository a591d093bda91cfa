"""Answers that all viewers share."""

from __future__ import annotations

import asyncio

import pytest

from headrace.dashboard.cache import IDLE_SECONDS, MAX_ENTRIES, MIN_AGE_RATIO, SharedReads
from headrace.testing.clock import FakeClock


async def test_however_many_ask_the_store_is_asked_once() -> None:
    clock, asked, gate = FakeClock(), list[int](), asyncio.Event()
    shared = SharedReads(clock)

    async def ask() -> int:
        asked.append(1)
        await gate.wait()
        return len(asked)

    waiting = [asyncio.create_task(shared.get("a", 1.0, ask)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # whoever asked first has gone; the others are answered all the same
    gate.set()
    assert await asyncio.gather(*waiting[1:]) == [1, 1, 1, 1]
    assert await shared.get("a", 1.0, ask) == 1
    clock.advance(1.1)
    assert await shared.get("a", 1.0, ask) == 2
    shared.forget()
    assert await shared.get("a", 1.0, ask) == 3


async def test_an_error_is_not_kept() -> None:
    shared, failing = SharedReads(FakeClock()), True

    async def ask() -> str:
        if failing:
            raise ValueError("not now")
        return "good"

    with pytest.raises(ValueError, match="not now"):
        await shared.get("a", 60.0, ask)
    failing = False
    assert await shared.get("a", 60.0, ask) == "good"


async def test_not_everything_is_kept_for_ever() -> None:
    clock = FakeClock()
    shared = SharedReads(clock)

    async def ask() -> None:
        return None

    for number in range(3 * MAX_ENTRIES):
        clock.advance(0.001)
        await shared.get(number, 60.0, ask)
    assert len(shared._found) <= MAX_ENTRIES


async def test_what_takes_long_is_not_waited_for_and_asked_for_less_often() -> None:
    clock, answers, gate = FakeClock(), list[int](), asyncio.Event()
    shared = SharedReads(clock)

    async def ask() -> int:
        answers.append(1)
        await gate.wait()
        clock.advance(3.0)  # as if it had taken so long
        return len(answers)

    assert await shared.soon("a", 1.0, ask, patience=0.01) is None
    gate.set()
    assert await shared.get("a", 1.0, ask) == 1, "it was fetched all the same"
    clock.advance(3.0 * MIN_AGE_RATIO - 1.0)
    assert await shared.soon("a", 1.0, ask, patience=0.01) == 1, "kept for many times as long as it took"
    clock.advance(2.0)
    gate.clear()
    assert await shared.soon("a", 1.0, ask, patience=0.01) == 1, "the answer before, while the next is fetched"
    gate.set()
    assert await shared.get("a", 1.0, ask) == 2


async def test_what_nobody_asks_for_any_more_is_not_kept() -> None:
    """The page of a job that moves is another answer each second: none of them may stay."""
    clock = FakeClock()
    shared = SharedReads(clock)

    async def ask() -> bytes:
        return b"much"

    for revision in range(300):
        clock.advance(1.0)
        await shared.get(("job", revision), 1.0, ask)
        await shared.get("queues", 1.0, ask)
    assert len(shared._found) <= IDLE_SECONDS * 1.2
    assert "queues" in shared._found
