"""Waiting within a request, for as long as whoever asks may."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headrace import App
from tests.hub.serving import serving
from tests.support.until import until


async def test_a_request_that_waits_ends_with_its_key(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def add(a: int) -> int:
        return a

    async with app:
        keys = {name: (await app.create_key(name, ["read"])).text for name in ("shop", "other")}
        async with serving(app) as hub:
            job = await add.submit(1)

            async def wait(name: str) -> int:
                headers = {"Authorization": f"Bearer {keys[name]}"}
                path = f"/api/jobs/{job.id}/result?wait=50"
                return (await hub.client.get(path, headers=headers)).status_code

            waiting = {name: asyncio.create_task(wait(name)) for name in keys}
            await until(lambda: len(app.session.watcher._followers.get(str(job.id), ())) == 2)
            await app.revoke_key("shop")
            assert await waiting["shop"] == 401
            assert not waiting["other"].done()
            await app.worker(burst=True).run()
            assert await waiting["other"] == 200
