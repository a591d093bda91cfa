"""Lanes: decisions about a job that somebody's transaction holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import asyncpg
import pytest

from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed
from headrace.core.change import Change
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.status import Status
from headrace.errors import TransitionRefused, Unavailable
from headrace.runtime.clock import SystemDice
from headrace.runtime.host import Host
from headrace.runtime.writes.writer import Writer
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import postgres_engine
from tests.support.until import until


class Sleeper(Host):
    """Remembers how long it was asked to sleep."""

    def __init__(self) -> None:
        super().__init__(dice=SystemDice(7))
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep(seconds)


@pytest.fixture
def host() -> Sleeper:
    return Sleeper()


@pytest.fixture
async def lab(tmp_path: Path, host: Sleeper) -> AsyncIterator[Lab]:
    rules = Rules()
    lab = Lab(lambda: postgres_engine(rules, host, tmp_path), host, rules)
    await lab.engine.open()
    yield lab
    await lab.engine.close()


@pytest.fixture
async def user(lab: Lab) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(shared().url())
    yield connection
    connection.terminate()


async def complete(lab: Lab, user: asyncpg.Connection[asyncpg.Record], job: Job) -> None:
    """In a transaction that stays open."""
    await user.execute("BEGIN")
    await lab.transactions.enlist(user).run(
        await lab.transactions.applying(lab.stamp(lab.end(job, Completed())), lab.now)
    )


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_a_decision_waits_for_a_transaction_that_holds_the_job(
    lab: Lab, host: Sleeper, user: asyncpg.Connection[asyncpg.Record], end: str
) -> None:
    job = await lab.running(await lab.worker())
    await complete(lab, user, job)
    writer = Writer(lab.engine, host)
    made = 0

    def verb(job: Job, now: datetime) -> Change | None:
        nonlocal made
        made += 1
        return actions.cancel(job, now, lab.rules)

    decided = asyncio.create_task(writer.decide(job.id, verb))
    await until(lambda: len(host.slept) > 3)
    assert not decided.done()
    assert host.slept[:4] == [0.02, 0.04, 0.08, 0.16]
    assert made <= 6
    await user.execute(end)
    if end == "COMMIT":
        with pytest.raises(TransitionRefused):
            await decided
        assert (await lab.get(job)).status is Status.COMPLETED
    else:
        assert (await decided).cancel_requested_at is not None
    await writer.close()


async def test_a_transaction_that_stays_open_is_said(
    lab: Lab, host: Sleeper, user: asyncpg.Connection[asyncpg.Record]
) -> None:
    job = await lab.running(await lab.worker())
    await complete(lab, user, job)
    writer = Writer(lab.engine, host, timeout=0.1)
    with pytest.raises(Unavailable, match="in a transaction that is still open") as caught:
        await writer.decide(job.id, lambda job, now: actions.cancel(job, now, lab.rules))
    assert caught.value.outcome == "refused"
    assert caught.value.ids == (job.id,)
    await user.execute("ROLLBACK")
    assert (await lab.get(job)).rev == job.rev
    await writer.close()
