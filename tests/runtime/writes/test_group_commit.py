"""Submits and finishes are coalesced: what comes at one moment costs a handful of commits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from headrace import App
from headrace.core.change import Change, Verdict
from headrace.core.job import Job
from headrace.engine import InsertAnswer
from headrace.engines.sqlite.jobs.role import Jobs


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the store was written, by verb."""
    counted: Counter[str] = Counter()
    insert, insert_one, apply = Jobs.insert, Jobs.insert_one, Jobs.apply

    async def counting_insert(self: Jobs, jobs: Sequence[Job], now: datetime) -> list[InsertAnswer]:
        counted["insert"] += 1
        return await insert(self, jobs, now)

    async def counting_apply(self: Jobs, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        counted["apply"] += 1
        return await apply(self, changes, now)

    def counting_insert_one(self: Jobs, job: Job, now: datetime, done: Callable[..., None]) -> bool:
        begun = insert_one(self, job, now, done)
        counted["insert"] += begun
        return begun

    monkeypatch.setattr(Jobs, "insert", counting_insert)
    monkeypatch.setattr(Jobs, "insert_one", counting_insert_one)
    monkeypatch.setattr(Jobs, "apply", counting_apply)
    return counted


async def test_a_thousand_concurrent_submits_cost_a_handful_of_commits(commits: Counter[str], tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    async with app:
        handles = await asyncio.gather(*(add.submit(n, n) for n in range(1000)))
        assert commits["insert"] <= 5
        async with app.worker(concurrency=100):
            assert [await handle.result(timeout=30) for handle in handles] == [2 * n for n in range(1000)]
        assert commits["apply"] <= 100


async def test_one_submit_is_one_commit(commits: Counter[str], tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.task
    async def noop() -> None:
        return None

    async with app:
        for _ in range(3):
            await noop.submit()
    assert commits["insert"] == 3
