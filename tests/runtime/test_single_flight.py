from __future__ import annotations

import asyncio

import pytest

from headrace.runtime.single_flight import SingleFlight


class Asked:
    """Answers with the number of the question, when it is let."""

    def __init__(self) -> None:
        self.count, self.may = 0, asyncio.Semaphore(0)
        self.at_once, self.begun = 0, asyncio.Event()

    async def __call__(self) -> int:
        self.count += 1
        self.at_once += 1
        self.begun.set()
        assert self.at_once == 1
        number = self.count
        try:
            await self.may.acquire()
        finally:
            self.at_once -= 1
        if number == 3:
            raise ValueError("the third")
        return number


async def test_who_asks_meanwhile_is_answered_by_the_next_question() -> None:
    asked = Asked()
    shared = SingleFlight(asked)
    first = [asyncio.create_task(shared()) for _ in range(3)]
    await asked.begun.wait()
    later = [asyncio.create_task(shared()) for _ in range(3)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert asked.count == 1
    asked.may.release()
    asked.may.release()
    assert await asyncio.gather(*first) == [1, 1, 1]
    assert await asyncio.gather(*later) == [2, 2, 2], "the first question was put before they asked"


async def test_what_goes_wrong_is_heard_by_those_who_asked_and_forgotten() -> None:
    asked = Asked()
    shared = SingleFlight(asked)
    asked.count = 2
    asked.may.release()
    with pytest.raises(ValueError, match="the third"):
        await shared()
    asked.may.release()
    assert await shared() == 4


async def test_one_that_gives_up_leaves_the_others_their_answer() -> None:
    asked = Asked()
    shared = SingleFlight(asked)
    one, other = asyncio.create_task(shared()), asyncio.create_task(shared())
    await asked.begun.wait()
    one.cancel()
    asked.may.release()
    assert await other == 1
    assert one.cancelled()
