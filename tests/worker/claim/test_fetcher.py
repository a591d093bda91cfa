"""Claiming: when the store is asked, and when it need not be."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from headrace.engine import Claimed, Dead, Engine
from headrace.engine.bus import Topic
from headrace.worker.claim import fetcher
from tests.support.faults import Instead, LosesReplies
from tests.support.shop import Shop
from tests.support.until import until


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "POLL_FIRST_SECONDS", 600.0)
    monkeypatch.setattr(fetcher, "POLL_MAX_SECONDS", 600.0)


class _Counts(LosesReplies):
    """Counts claims by how many jobs they gave."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, {})
        self.given: Counter[int] = Counter()

    async def claim(self, *args: Any) -> Claimed | Dead:
        answer = await self._engine.jobs.claim(*args)
        self.given[len(cast("Claimed", answer).jobs)] += 1
        return answer


@pytest.mark.usefixtures("no_polls")
async def test_the_end_of_a_job_is_no_reason_to_ask_where_there_was_nothing_more(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that came alone is one claim, not one more when its slot comes free and one when its end is stored."""

    async def noop() -> None:
        pass

    monkeypatch.setattr(fetcher, "FRESH_SECONDS", 600.0)
    shop.task(noop)
    store = _Counts(shop.engine)
    known = await shop.submit("noop")  # the worker learns of its task before anything is counted
    async with shop.worker(engine=cast("Engine", store)) as worker:
        await shop.ended(known)
        await until(lambda: worker._slots.empty, what="its end is known")
        store.given.clear()
        for _ in range(5):
            await shop.ended(await shop.submit("noop"))
            await until(lambda: worker._slots.empty, what="its end is known")
    # A hint may come twice, through the store and within the session; but nobody asks without one.
    assert store.given[1] == 5
    assert store.given[0] <= 1 + 5


@pytest.mark.usefixtures("no_polls")
async def test_jobs_that_come_without_hints_are_found_when_others_end(shop: Shop) -> None:
    """Whoever was given more than it was told of asks again: here nobody is told of anything."""

    async def noop() -> None:
        pass

    shop.task(noop)
    engine = shop.engine

    def listen(topics: frozenset[Topic], listener: Any) -> Any:
        return engine.bus.listen(topics - {Topic.READY}, listener)

    first = await shop.submit("noop")
    gate, claimed = asyncio.Event(), asyncio.Event()

    class Late(LosesReplies):
        async def claim(self, *args: Any) -> Claimed | Dead:
            answer = await self._engine.jobs.claim(*args)
            if not claimed.is_set():
                claimed.set()
                await gate.wait()
            return answer

    deaf = Instead(Late(engine, {}), bus=Instead(engine.bus, listen=listen))
    async with shop.worker(engine=cast("Engine", deaf)):
        await asyncio.wait_for(claimed.wait(), 45)
        second = await shop.submit("noop")
        gate.set()
        await shop.all_ended([first, second])


@pytest.mark.usefixtures("no_polls")
async def test_what_a_beat_teaches_while_a_claim_is_under_way_is_asked_for_next(shop: Shop) -> None:
    """The claim did not ask for the job, and its answer says nothing that is not known by now."""

    async def noop() -> None:
        pass

    shop.task(noop)
    engine, gate = shop.engine, asyncio.Event()

    def listen(topics: frozenset[Topic], listener: Any) -> Any:
        return engine.bus.listen(topics - {Topic.READY}, listener)

    class Late(LosesReplies):
        async def claim(self, *args: Any) -> Claimed | Dead:
            await gate.wait()
            return await self._engine.jobs.claim(*args)

    deaf = Instead(Late(engine, {}), bus=Instead(engine.bus, listen=listen))
    async with shop.worker(engine=cast("Engine", deaf)) as worker:
        await until(lambda: bool(worker.fetchers) and worker.fetchers[0].request is not None, what="a claim")
        id = await shop.submit("noop")
        assert await worker.fetchers[0].know_profiles()
        gate.set()
        await shop.ended(id)


@pytest.mark.usefixtures("no_polls")
async def test_what_a_claim_said_is_not_believed_for_long(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint that is lost, or late, is made up for by the end of a job that ran for longer than a moment."""
    gate, claims = asyncio.Event(), 0

    async def waits() -> None:
        await gate.wait()

    monkeypatch.setattr(fetcher, "FRESH_SECONDS", 0.0)
    shop.task(waits)
    store = _Counts(shop.engine)
    known = await shop.submit("waits")
    gate.set()
    async with shop.worker(engine=cast("Engine", store)) as worker:
        await shop.ended(known)
        await until(lambda: worker._slots.empty, what="its end is known")
        gate.clear()
        id = await shop.submit("waits")
        await until(lambda: store.given[1] == 2, what="the job is claimed")
        claims = store.given[0]
        gate.set()
        await shop.ended(id)
        await until(lambda: store.given[0] > claims, what="a claim after its end")


@pytest.mark.parametrize(
    ("given", "free", "hints", "full", "all_there_was"),
    [
        (0, 10, 0, False, True),
        (1, 10, 1, False, True),
        (1, 10, 0, False, False),  # polled for
        (2, 10, 1, False, False),  # jobs come faster than hints
        (1, 1, 1, False, False),  # there was no room for more
        (0, 10, 1, True, False),  # a limit holds some back, and a job that ends makes room in it
    ],
)
def test_what_a_claim_says_of_the_rest(given: int, free: int, hints: int, full: bool, all_there_was: bool) -> None:
    claimed = Claimed(cast("Any", (None,) * given), 0, 0, None, full)
    assert fetcher._gave_all(claimed, free, hints) is all_there_was
