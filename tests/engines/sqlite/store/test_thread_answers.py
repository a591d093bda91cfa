"""Answers from a thread: in order, each once, and none is lost because of another."""

from __future__ import annotations

import asyncio
import os
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from headrace.engines.sqlite.store.thread import Answers

BELLS = pytest.mark.parametrize("bell", [True, False], ids=["eventfd", "call_soon_threadsafe"])

_place: ContextVar[str] = ContextVar("_place", default="nowhere")


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, bell: bool) -> bool:
    if not bell:
        monkeypatch.delattr(os, "eventfd", raising=False)
    return bell


def _from_a_thread(answers: Answers, over: Any, count: int) -> None:
    def put() -> None:
        for number in range(count):
            answers.put(over, number, None)

    thread = threading.Thread(target=put)
    thread.start()
    thread.join()


@BELLS
async def test_answers_come_in_order(without: bool) -> None:
    answers, got, done = Answers(asyncio.get_running_loop()), list[int](), asyncio.Event()

    def over(number: int, error: Exception | None) -> None:
        got.append(number)
        if len(got) == 100:
            done.set()

    _from_a_thread(answers, over, 100)
    assert got == [], "the loop calls, not the thread"
    async with asyncio.timeout(30):
        await done.wait()
    assert got == list(range(100))
    answers.close()


@BELLS
async def test_one_that_fails_keeps_nobody_from_an_answer(without: bool) -> None:
    loop = asyncio.get_running_loop()
    failures = list[Any]()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    answers, got, done = Answers(loop), list[int](), asyncio.Event()

    def over(number: int, error: Exception | None) -> None:
        if number == 1:
            raise ZeroDivisionError
        got.append(number)
        if number == 2:
            done.set()

    _from_a_thread(answers, over, 3)
    async with asyncio.timeout(30):
        await done.wait()
    answers.close()
    assert got == [0, 2]
    assert [type(failure) for failure in failures] == [ZeroDivisionError]


@BELLS
def test_an_interrupt_keeps_nobody_from_an_answer(without: bool) -> None:
    """A loop that is run again after Ctrl-C delivers what is left."""
    loop = asyncio.new_event_loop()
    got = list[int]()

    async def make() -> Answers:
        return Answers(loop)

    def over(number: int, error: Exception | None) -> None:
        if number == 0:
            raise KeyboardInterrupt
        got.append(number)

    answers = loop.run_until_complete(make())
    _from_a_thread(answers, over, 3)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.sleep(30))
    loop.run_until_complete(asyncio.sleep(0.01))
    assert got == [1, 2]
    loop.run_until_complete(_close(answers))
    loop.close()


async def _close(answers: Answers) -> None:
    answers.close()


async def test_what_was_put_before_the_end_is_delivered_by_it() -> None:
    answers, got = Answers(asyncio.get_running_loop()), list[int]()
    if answers._bell < 0:
        pytest.skip("this system has no eventfd")
    _from_a_thread(answers, lambda number, error: got.append(number), 3)
    answers.close()
    assert got == [0, 1, 2]
    answers.close()


@BELLS
async def test_what_an_answer_begins_is_not_the_openers(without: bool) -> None:
    """A task that is begun by an answer does not run in the context of whoever opened the store."""
    token = _place.set("opener")
    answers = Answers(asyncio.get_running_loop())
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    _from_a_thread(answers, lambda number, error: found.set_result(_place.get()), 1)
    async with asyncio.timeout(30):
        assert await found == "nowhere"
    answers.close()
    _place.reset(token)
