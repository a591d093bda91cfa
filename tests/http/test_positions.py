"""Positions: how many of them are looked for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import App
from headrace.client.api.jobs import JobsApi
from headrace.client.api.positions import QueuePosition
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.submission import submit
from headrace.errors import Unavailable
from headrace.http import positions
from headrace.http.positions import Positions
from headrace.testing import FakeClock

NOW = datetime(2026, 11, 16, tzinfo=UTC)


class Slow(App):
    """An App of whose jobs all are third, and that takes its time to find that out."""

    def __init__(self, clock: FakeClock, takes: float) -> None:
        super().__init__("memory://", clock=clock)
        self.asked, self.takes, self.time = 0, takes, clock
        self.jobs = _Jobs(self)


class _Jobs(JobsApi):
    _app: Slow

    async def position(self, job: object) -> QueuePosition:
        self._app.asked += 1
        self._app.time.advance(self._app.takes)
        return QueuePosition(3, NOW)


def a_job() -> Job:
    return submit(App("memory://").host.new_id(NOW), Spec(task="a", created_at=NOW), "{}", NOW)


async def asked(takes: float, seconds: int, a_second: int) -> int:
    """How often it is looked for, if so many jobs come each second."""
    clock = FakeClock()
    app, job = Slow(clock, takes), a_job()
    told = Positions(app)
    for _ in range(seconds):
        for _ in range(a_second):
            assert await told.of(job) in ((3, NOW), (None, None))
        clock.advance(1)
    return app.asked


async def test_so_many_a_second() -> None:
    assert await asked(0, 1, 15) == 15, "few are all told"
    assert await asked(0, 1, 100) == positions.MAX_READS_PER_SECOND
    assert await asked(0, 10, 100) == 10 * positions.MAX_READS_PER_SECOND


async def test_where_each_takes_long_there_are_fewer() -> None:
    """Of a hundred seconds it is about three."""
    assert 60 <= await asked(0.05, 100, 50) <= 80
    assert await asked(0.25, 100, 50) <= 20


async def test_a_submit_does_not_wait_for_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    app, never = Slow(clock, 0), asyncio.Event()
    told, job = Positions(app), a_job()
    monkeypatch.setattr(positions, "READ_TIMEOUT_SECONDS", 0.01)

    async def hangs(job: object) -> None:
        await never.wait()

    monkeypatch.setattr(app.jobs, "position", hangs)
    assert await told.of(job) == (None, None)

    async def fails(job: object) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(app.jobs, "position", fails)
    assert await told.of(job) == (None, None)


async def test_two_do_not_look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    app, go = Slow(FakeClock(), 0), asyncio.Event()
    told, job, position = Positions(app), a_job(), app.jobs.position
    monkeypatch.setattr(positions, "READ_TIMEOUT_SECONDS", 45)

    async def waits(job: Any) -> QueuePosition | None:
        await go.wait()
        return await position(job)

    monkeypatch.setattr(app.jobs, "position", waits)
    first = asyncio.create_task(told.of(job))
    await asyncio.sleep(0)
    assert await told.of(job) == (None, None)
    go.set()
    assert await first == (3, NOW)
