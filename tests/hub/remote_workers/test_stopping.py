"""A hub stops while workers claim."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.hub import HubOptions
from tests.hub.remote_workers.working import said, work
from tests.hub.serving import serving
from tests.support.apps import url_of
from tests.support.until import until


async def test_it_ends_while_the_store_is_asked_for_one_and_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = asyncio.Event(), asyncio.Event()
    async with serving(url_of("sqlite", tmp_path)) as hub:
        claim = hub.app.session.engine.jobs.claim

        async def slow(*args: Any) -> Any:
            asked.set()
            await answers.wait()
            return await claim(*args)

        monkeypatch.setattr(hub.app.session.engine.jobs, "claim", slow)
        claims = [
            asyncio.create_task(said(hub.client, "claim_job", worker_id=f"w{n}", tasks=["work"], wait=50))
            for n in range(3)
        ]
        await asked.wait()
        await until(lambda: sum(worker.given for worker in hub.hub.fleet.workers.values()) == 3)
        closing = asyncio.create_task(hub.hub.fleet.claims.close())
        await asyncio.sleep(0)
        answers.set()
        await closing
        assert [answer.json()["type"] for answer in await asyncio.gather(*claims)] == ["no_job"] * 3


async def test_who_has_waited_may_wait_again_at_once_unless_it_stops(tmp_path: Path) -> None:
    async with serving(url_of("sqlite", tmp_path), HubOptions(maintenance=False, webhooks=False, linger=600)) as hub:

        async def claimed(wait: float) -> float:
            answer = await work(hub.client, "claim_job", worker_id="one", tasks=["work"], wait=wait)
            assert answer["type"] == "no_job"
            return float(answer["retry_after"])

        assert await claimed(0.01) == 0
        assert await claimed(0) > 0
        waiting = asyncio.create_task(claimed(50))
        await until(lambda: hub.hub.fleet.workers)
        hub.server.stop()
        assert await waiting > 0, "others would ask again and again, as long as it lingers"
