"""What is meant by a part of an id, or by a name."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from headrace import App
from headrace.cli.ids import resolve_worker
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.engine import WorkerInfo


async def test_a_worker_is_meant_by_what_it_calls_itself(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def rest() -> None: ...

    async with app:
        engine, now = app.session.engine, app.host.clock.now()
        ids = [app.host.dice.new_id(now) for _ in range(3)]
        for id, name in zip(ids, ("gpu-01", "gpu-01", "gpu-02"), strict=True):
            info = WorkerInfo(id=id, host=name, pid=0, started_at=now, concurrency=1, name=name)
            await engine.workers.register(info, now)
        assert await resolve_worker(app, "gpu-02") == ids[2]
        assert await resolve_worker(app, str(ids[0])[-8:]) == ids[0]
        with pytest.raises(click.UsageError, match=str(ids[0])):
            await resolve_worker(app, "gpu-01")
        held = await rest.submit()
        profiles = frozenset(one.id for one in (await engine.documents.profiles()).profiles)
        await engine.jobs.claim(ids[0], ClaimRequest(n=1, free=1, profiles=profiles), 1, now)
        assert await engine.workers.bury(ids[0], 0)
        assert (await app.jobs.get(held.id)).worker == ids[0], "so it stays known"
        assert await resolve_worker(app, "gpu-01") == ids[1], "the one that is alive"
