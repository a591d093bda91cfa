"""The client side of the EmProps page, played over a real port: submit, subscribe, progress, completion, webhook."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Context
from headrace.hub import HubOptions
from tests.hub import page
from tests.hub.live.listening import connected
from tests.hub.serving import serving
from tests.hub.webhooks.receiving import receiving
from tests.support.apps import url_of
from tests.support.until import until

OPTIONS = HubOptions(webhook_http=True, webhook_allow=("127.0.0.0/8",))


class Studio:
    """The page's worker: it says and returns what the page says that it does, the end when it is let."""

    def __init__(self, url: str) -> None:
        self.app, self.gate = App(url), asyncio.Event()

        @self.app.task
        async def render_frame(ctx: Context, scene: str, frame: int, samples: int, denoise: float) -> dict[str, Any]:
            said = json.loads(page.PROGRESS)
            ctx.progress(
                said["progress"],
                said["message"],
                step=said["current_step"],
                estimated_completion=datetime.fromisoformat(said["estimated_completion"]),
                details=said["connector_details"],
            )
            await self.gate.wait()
            done: dict[str, Any] = json.loads(page.RESULT.replace(page.ID, str(ctx.job.id)))
            return done


@pytest.mark.every_engine
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_the_page_is_played_to_its_end(engine: str, tmp_path: Path) -> None:
    studio = Studio(url_of(engine, tmp_path))
    async with receiving() as receiver, serving(studio.app, OPTIONS) as hub:
        key = (await studio.app.keys.create("client", ["read", "submit", "act", "admin"])).text
        bearer = {"authorization": f"Bearer {key}"}

        async def known() -> bool:
            return (await hub.client.get("/api/jobs")).status_code == 401

        await until(known)  # the hub has heard of the key, and wants it

        webhook = page.WEBHOOK.replace(page.URL, f"http://127.0.0.1:{receiver.port}/told")
        assert (await hub.client.post("/api/webhooks", content=webhook, headers=bearer)).status_code == 201
        answer = await hub.client.post("/api/jobs", content=page.SUBMIT, headers=bearer)
        accepted = answer.json()
        assert (answer.status_code, accepted["status"], accepted["position"]) == (201, "queued", 1)
        assert accepted.keys() >= {"job_id", "status", "position", "estimated_start", "created_at"}
        id = accepted["job_id"]

        async with connected(hub) as socket:
            assert (await socket.ask("authenticate", key=key))["type"] == "authenticated"
            await socket.connection.send(json.dumps(json.loads(page.SUBSCRIBE) | {"job_id": id, "words": "emprops"}))
            assert (await socket.until("job_status"))["status"] == "queued"
            assert (await socket.until("queue_position"))["position"] == 1
            async with studio.app.worker(offers=json.loads(page.CAPABILITIES)):
                assert (await socket.until("job_status", status="in_progress"))["attempt"] == 1
                told, said = await socket.until("job_progress"), json.loads(page.PROGRESS)
                for name in ("progress", "message", "current_step", "estimated_completion", "connector_details"):
                    assert told[name] == said[name]
                # So that the end is not told before the progress: whoever is told of both is told of the last alone.
                await until(lambda: len(receiver.requests) >= 3)
                studio.gate.set()
                await socket.until("job_status", status="completed", ended=True)
                result = (await socket.until("job_result"))["result"]
        assert result == json.loads(page.RESULT.replace(page.ID, id))
        job = (await hub.client.get(f"/api/jobs/{id}", headers=bearer)).json()
        assert (job["status"], job["customer"], job["priority"], job["result"]) == (
            "completed", "studio-7", 75, result,
        )  # fmt: skip
        assert (await hub.client.get(f"/api/jobs/{id}/result", headers=bearer)).json() == result

        await until(lambda: len(receiver.requests) == 4)
        bodies = [json.loads(one.body) for one in receiver.requests]
        assert [one["type"] for one in bodies] == ["job.submitted", "job.started", "job.progress", "job.completed"]
        assert {one["data"]["job_id"] for one in bodies} == {id}
        assert {one.line for one in receiver.requests} == {"POST /told HTTP/1.1"}
        assert {one.headers["authorization"] for one in receiver.requests} == {"Bearer what-the-studio-expects"}
