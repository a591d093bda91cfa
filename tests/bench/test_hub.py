"""The bench of the hub: its clients ask and hear what they should, and its lines say whether a promise is kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.children import BrokenDown
from bench.hub import HubFigures, hub_lines
from bench.hub_load import connected, get, post, pump, subscribed
from headrace import App
from tests.hub.serving import serving


def figures(bare: float, submits: float) -> HubFigures:
    return HubFigures(
        bare=[bare],
        submits=[submits],
        logged=[submits],
        bulk=[30_000.0],
        start_ms=[90.0],
        end_ms=[80.0],
        alone=[1000.0],
        listened=[980.0],
        idle=10,
        idle_kib=[8.0],
        usual_ms=[1.0],
        crowded_ms=[1.0],
    )


def test_a_promise_that_is_kept_and_one_that_is_not_are_told_apart() -> None:
    assert "✗" not in "\n".join(hub_lines(figures(1000, 500)))
    (missed,) = [line for line in hub_lines(figures(1000, 499)) if "✗" in line]
    assert "0.50×" in missed
    crowded = figures(1000, 500)
    for usual, beside, good in ((1.0, 9.9, True), (1.0, 10.1, False), (6.0, 11.9, True), (6.0, 12.1, False)):
        crowded.usual_ms, crowded.crowded_ms = [usual], [beside]
        (said,) = [line for line in hub_lines(crowded) if "beside them" in line]
        assert said.startswith("  ✓" if good else "  ✗")


def test_the_peer_says_what_it_is_or_why_it_was_not_run() -> None:
    found = figures(1000, 500)
    found.peer = "not run: no redis-server on the path"
    assert found.peer in "\n".join(hub_lines(found))
    found.peer, found.peer_submits = "celery 1.2", [50.0]
    said = "\n".join(hub_lines(found))
    assert "10.0× as many" in said
    assert "celery 1.2" in said


async def test_clients_ask_everything_once(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        request = post("/api/jobs", {"task": "work", "payload": {}})
        _, spans = await pump(hub.address, iter([request] * 40), 5)
        assert len(spans) == 40
        assert await hub.app.jobs.count(task="work") == 40
        with pytest.raises(BrokenDown, match="404"):
            await pump(hub.address, iter([get("/nothing")]), 1)


async def test_subscribers_hear_the_end(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def work() -> None: ...

    async with serving(app) as hub:
        jobs = [await work.submit() for _ in range(3)]
        heard, over = list[str](), asyncio.Event()

        def told(status: str, seconds: float) -> None:
            heard.append(status)
            if len(heard) == len(jobs):
                over.set()

        with connected() as transports:
            await subscribed(hub.address, [f"/api/jobs/{job.id}/events" for job in jobs], told, transports)
            for job in jobs:
                await job.cancel()
            await over.wait()
        assert heard == ["cancelled"] * 3
