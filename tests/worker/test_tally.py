"""What a worker's log says of its jobs: one line for each attempt that failed, and more only if asked."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.core.defaults import Rules
from headrace.core.lifecycle.loss import lose
from headrace.core.lifecycle.retry import Retry
from headrace.core.stats.rollup import SLOTS, Totals
from headrace.core.status import Cause, Status
from headrace.errors import Snooze
from headrace.worker import tally as tallying
from headrace.worker.execution.context import Context
from tests.support.shop import ENGINES, Shop, open_shop
from tests.support.until import until

NAMES = ("fine", "boom", "later", "slow")
ONCE_MORE = Retry(1, backoff="fixed", initial=0.01, jitter=False)


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    """What the worker said, from this level on."""
    return [
        one.getMessage() for one in caplog.records if one.name.startswith("headrace.worker") and one.levelno >= level
    ]


async def test_each_failed_attempt_is_one_warning(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    async def boom(card: str) -> None:
        raise ConnectionError("no route")

    async def fine() -> None:
        """Nothing to say."""

    shop.task(boom)
    shop.task(fine)
    id = await shop.submit("boom", payload={"card": "4111"}, retry=ONCE_MORE)
    other = await shop.submit("fine")
    with caplog.at_level(logging.INFO, "headrace"):
        async with shop.worker():
            await shop.ended(id)
            await shop.ended(other)
    name = f"boom {id.hex[-8:]}"
    assert lines(caplog) == [
        f"{name}: attempt 1 of 2 failed: ConnectionError: no route; next try in 0.0 s",
        f"{name}: attempt 2 of 2 failed: ConnectionError: no route; dead letter (retries exhausted)",
    ]
    assert "4111" not in caplog.text, "payloads stay where they are"
    assert "fine" not in caplog.text


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_time_out_is_one_warning(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def slow() -> None:
        await asyncio.sleep(60)

    # With the beats that everybody has: with short ones, the heartbeat of a machine that stood still for a moment takes
    # the loop for blocked, and ends the attempt itself.
    async with open_shop(kind, tmp_path, Rules()) as shop:
        shop.task(slow)
        id = await shop.submit("slow", timeout=0.05, retry=Retry(0))
        async with shop.worker() as worker:
            await shop.ended(id)
            await until(lambda: worker.stats.failed == 1)
    assert lines(caplog) == [
        f"slow {id.hex[-8:]}: attempt 1 of 1 timed out: the attempt ran out of time (0.05 s); dead letter (timeout)"
    ]


async def test_an_end_that_came_too_late_is_one_warning(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(ctx: Context) -> None:
        await ctx.flush()
        began.set()
        await go_on.wait()

    shop.task(slow)
    id = await shop.submit("slow", retry=Retry(0))
    async with shop.worker() as worker:
        await asyncio.wait_for(began.wait(), 45)
        now, rules = shop.host.clock.now(), shop.engine.rules
        await shop.writer.decide(id, lambda job, _: lose(job, Cause.LEASE, now, 0.5, rules))
        go_on.set()
        await until(lambda: worker.stats.stale == 1)
    said = f"slow {id.hex[-8:]} has another owner by now: what this worker had to say was stale"
    assert lines(caplog) == [said]


@pytest.mark.every_engine
async def test_what_a_dead_worker_held_is_told_by_whoever_takes_it_back(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    began, gate = asyncio.Event(), asyncio.Event()

    async def slow(ctx: Context) -> None:
        await ctx.flush()
        began.set()
        await gate.wait()

    shop.task(slow)
    twin = shop.engine.another_session()
    await twin.open()
    dead = shop.worker(engine=twin)
    await dead.start()
    id = await shop.submit("slow", retry=Retry(0))
    await asyncio.wait_for(began.wait(), 45)
    assert dead._heartbeat is not None
    await dead._heartbeat.stop()
    async with shop.worker(maintain=True):
        await shop.ended(id)
    gate.set()
    await dead.end()
    await twin.close()
    [said] = [
        one.getMessage() for one in caplog.records if one.name == "headrace.sweeper" and "attempt" in one.msg % one.args
    ]
    # By its silence, or because nothing was held for it any more, whichever was found first.
    cause = r"the worker is dead: (it was silent for \S+ s|its last heartbeat was \S+ s earlier)"
    lost = rf"attempt 1 of 1 was lost: {cause}; dead letter \(lost\)"
    assert re.fullmatch(rf"slow {id.hex[-8:]}: {lost}", said), said


async def test_starts_and_ends_are_said_where_somebody_listens(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    snoozed: list[int] = []

    async def drowsy() -> None:
        if not snoozed:
            snoozed.append(1)
            raise Snooze(0)

    shop.task(drowsy)
    with caplog.at_level(logging.DEBUG, "headrace.worker"):
        async with shop.worker():
            id = await shop.submit("drowsy")
            await shop.ended(id)
    name = f"drowsy {id.hex[-8:]}: "
    said = [line.removeprefix(name).split(" after ")[0] for line in lines(caplog, logging.DEBUG) if name in line]
    assert said == ["attempt 1 of 4 starts", "snoozed for 0 s", "attempt 1 of 4 starts", "completed"]


async def test_healthy_jobs_cost_the_log_nothing_when_nobody_listens(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Counts(logging.Logger):
        def isEnabledFor(self, level: int) -> bool:  # noqa: N802
            asked.append("level")
            return super().isEnabledFor(level)

    async def fine() -> None:
        """Nothing to say."""

    counts = Counts("headrace.worker.counts", logging.WARNING)
    monkeypatch.setattr(tallying, "_log", counts)
    shop.task(fine)
    ids = await shop.submit_many("fine", 500)
    async with shop.worker() as worker:
        monkeypatch.setattr(worker._slots.tally, "look", lambda: None)  # what the tick does, four times a second
        asked.clear()
        await shop.all_ended(ids)
        assert asked == []


@pytest.mark.parametrize("engine", ENGINES)
async def test_what_a_worker_finished_is_handed_in_at_the_latest_when_it_stops(engine: str, tmp_path: Path) -> None:
    async with open_shop(engine, tmp_path) as shop:

        async def fine() -> None:
            """Done at once."""

        async def boom() -> None:
            raise ConnectionError("no route")

        async def later(ctx: Context) -> None:
            if ctx.attempt == 1:
                raise Snooze(0)

        async def slow() -> None:
            await asyncio.Event().wait()

        for fn in (fine, boom, later, slow):
            shop.task(fn)
        ids = [await shop.submit("fine", queue="q") for _ in range(5)]
        ids += [await shop.submit("boom", retry=ONCE_MORE), await shop.submit("later")]
        ids.append(await shop.submit("slow", timeout=0.05, retry=Retry(0)))
        stopped = await shop.submit("slow")
        async with shop.worker():
            await shop.all_ended(ids)
            await shop.reaches(stopped, Status.RUNNING)
            await shop.cancel(stopped)
            await shop.ended(stopped)
        found: dict[tuple[str, str], Totals] = {}
        now = shop.host.clock.now()
        for row in await shop.engine.rollups.read(now - timedelta(hours=1), now + timedelta(hours=1)):
            found.setdefault((row.task, row.queue), Totals()).merge(row.totals)
        slots = found.pop((SLOTS, ""))
        assert 0 <= slots.busy <= slots.slots
        assert slots.slots > 0
        assert found.keys() == {("fine", "q"), ("boom", "default"), ("later", "default"), ("slow", "default")}
        fine_, boom_, later_, slow_ = (found[name, "q" if name == "fine" else "default"] for name in NAMES)
        assert (fine_.completed, fine_.attempts, fine_.waited.count, fine_.ran.count) == (5, 5, 5, 5)
        assert (boom_.failed, boom_.retried, boom_.attempts, boom_.ran.count) == (2, 1, 2, 2)
        assert (later_.snoozed, later_.completed, later_.attempts, later_.ran.count) == (1, 1, 2, 1)
        assert (slow_.timed_out, slow_.cancelled, slow_.attempts) == (1, 1, 2)
        assert slow_.ran.seconds >= 0.05
        jobs = {one: (one_.died, one_.repeated, one_.assigned) for (one, _), one_ in found.items()}
        assert jobs == {"fine": (0, 0, 5), "boom": (1, 1, 1), "later": (0, 0, 1), "slow": (1, 0, 2)}
        assert fine_.processed == pytest.approx(fine_.ran.seconds)
        assert slow_.processed == 0
        assert 0 <= fine_.queued <= fine_.waited.seconds
        assert 0 <= boom_.queued <= boom_.waited.seconds
