"""A worker that somebody elsewhere wishes to leave."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from headrace import App, Status
from headrace.engine.bus import Hint, Topic
from headrace.errors import UnknownWorker
from headrace.worker.drain import DRAIN
from tests.support.apps import ENGINES, url_of
from tests.support.until import until


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_worker_finishes_what_it_has_and_leaves(engine: str, tmp_path: Path) -> None:
    app, began, gate = App(url_of(engine, tmp_path)), asyncio.Event(), asyncio.Event()

    @app.task
    async def long() -> str:
        began.set()
        await gate.wait()
        return "done"

    async with app:
        worker = app.worker(concurrency=1, grace=0.0)
        async with worker:
            job = await long.submit()
            await began.wait()
            row = await app.workers.drain(worker.id, by="ops")
            assert (row.info.id, row.alive) == (worker.id, True)
            await until(lambda: worker.stats.state == "draining")
            later = await long.submit()
            assert [(one.key, one.verb, one.by) for one in await app.store.audit()] == [
                (f"{DRAIN}{worker.id}", "drain", "ops")
            ]
            gate.set()
            await worker.done()
        assert (await job.refresh()).status is Status.COMPLETED
        assert (await later.refresh()).status is Status.QUEUED
        assert await app.session.engine.documents.settings(DRAIN) == []  # it has taken the wish along
        with pytest.raises(UnknownWorker):
            await app.workers.drain(worker.id)


async def test_a_worker_learns_of_it_without_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_BEAT", "0.2")  # from whose answers it learns
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    async with app:
        worker = app.worker()
        send = app.session.engine.bus.send
        monkeypatch.setattr(app.session.engine.bus, "send", lambda hint: None if _is_wish(hint) else send(hint))
        async with worker:
            await until(lambda: worker.healthy)
            await app.workers.drain(worker.id)
            await worker.done()
    assert worker.stats.state == "stopped"


def _is_wish(hint: Hint) -> bool:
    return hint.topic is Topic.SETTINGS and any(name.startswith(DRAIN) for name in hint.names)


async def test_wishes_about_workers_that_are_gone_are_dropped(tmp_path: Path) -> None:
    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:
        await app.session.engine.documents.put_setting(f"{DRAIN}{uuid4()}", "{}", 0)
        async with app.worker() as worker:
            await until(lambda: worker.healthy)
            await app.workers.drain(str(worker.id))
            await worker.done()
        assert await app.session.engine.documents.settings(DRAIN) == []
        with pytest.raises(UnknownWorker):
            await app.workers.drain(uuid4())
