"""Load: the jobs that wait, are held and ended recently, as the core counts them from all jobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import OOPS, Choices, Lab, Part
from headrace.conformance.records.position import everything
from headrace.core.attempt import Completed, Ending, Failed
from headrace.core.lifecycle import actions
from headrace.core.stats.load import Load, loads_of
from headrace.core.status import Reason

__all__ = ["CountedLoads"]

_ENDINGS: tuple[Ending, ...] = (Completed(), Failed(error=OOPS, reason=Reason.NON_RETRYABLE))


def ordered(loads: Iterable[Load]) -> list[Load]:
    """Return the loads in an order of their own."""
    return sorted(loads, key=lambda load: (load.queue, load.task, sorted(load.requires)))


class CountedLoads(Part):
    """What the load of a store promises."""

    async def test_an_empty_store_has_none(self, lab: Lab) -> None:
        found = await lab.engine.records.load(lab.now, 5)
        assert (found.loads, found.since) == ((), lab.now - timedelta(minutes=5))

    async def test_each_kind_of_job_is_counted_apart(self, lab: Lab) -> None:
        gpu: dict[str, Any] = {"gpu": {"min": 24}}
        await lab.put_all(lab.job("a", requires=gpu), lab.job("a"), lab.job("b"), lab.job("a", queue="q"))
        arrived = lab.now
        lab.later(3)
        await lab.put("a", requires=gpu, delay=60)
        await lab.put_all(lab.job("a", requires=gpu, priority=90), lab.job("a", requires=gpu, concurrency_key="k"))
        lab.later(2)
        found = ordered((await lab.engine.records.load(lab.now)).loads)
        assert [(one.queue, one.task, one.requires, one.queued, one.oldest) for one in found] == [
            ("default", "a", {}, 1, arrived),
            ("default", "a", gpu, 3, arrived),
            ("default", "b", {}, 1, arrived),
            ("q", "a", {}, 1, arrived),
        ]

    async def test_what_ended_is_counted_by_minutes(self, lab: Lab) -> None:
        worker = await lab.worker()
        for seconds in (30, 60, 600):
            job = await lab.running(worker)
            await lab.finish(job, Completed() if seconds != 60 else Failed(error=OOPS, reason=Reason.NON_RETRYABLE))
            lab.later(seconds)
        held = await lab.running(worker)
        by_hand = await lab.put()
        await lab.do(actions.resolve(by_hand, lab.now, result_text="1"))
        [load] = (await lab.engine.records.load(lab.now)).loads
        assert (load.task, load.queued, load.held, load.ended) == (held.task, 0, 1, {10: 1, 11: 2}), (
            "by hand is no work"
        )
        [load] = (await lab.engine.records.load(lab.now, 11)).loads
        assert load.ended == {10: 1}

    async def test_no_more_than_this_many_need_be_counted(self, lab: Lab) -> None:
        await lab.put_all(*(lab.job() for _ in range(5)))
        worker = await lab.worker()
        for _ in range(4):
            lab.later(1)
            await lab.finish(await lab.running(worker, "b"), Completed())
        ended_at = lab.now
        lab.later(2)
        found = await lab.engine.records.load(lab.now, 5, most=3, recent=2)
        done, waiting = ordered(found.loads)
        assert waiting.queued == 5 or (waiting.queued == 3 and waiting.more)
        if found.since > lab.now - timedelta(minutes=5):
            assert (found.since, done.ended) == (ended_at - timedelta(seconds=2), {0: 2})
        else:
            assert done.ended == {0: 4}

    @pytest.mark.parametrize("seed", range(3))
    async def test_the_load_agrees_with_the_core(self, lab: Lab, seed: int) -> None:
        choose = Choices(seed)
        await lab.set("queue:q", '{"by_customer":true}')
        for _ in range(12):
            await lab.put_all(
                *(
                    replace(
                        lab.job(
                            choose("a", "b"),
                            queue=choose("q", "r"),
                            customer=choose(None, "ann", "bob"),
                            requires=choose({}, {}, {"gpu": True}),
                            delay=choose(0, 0, 40),
                            priority=choose(20, 50),
                            concurrency_key=choose(None, None, "k", "l"),
                        ),
                        suspect=choose(0, 0, 0, 2),
                    )
                    for _ in range(3)
                )
            )
            lab.later(choose(1, 20, 70))
            worker = await lab.worker()
            for job in await lab.claim(worker, choose(0, 1, 2)):
                started = await lab.start(job)
                if choose(True, False):
                    await lab.finish(started, choose(*_ENDINGS))
        jobs = await everything(lab)
        for minutes in (1, 15):
            found, wanted = await lab.engine.records.load(lab.now, minutes), loads_of(jobs, lab.now, minutes)
            assert found.since == wanted.since
            assert ordered(found.loads) == ordered(wanted.loads)
