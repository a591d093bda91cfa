"""Figures are about the user's jobs on every screen, whatever becomes of headrace's own."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from headrace import App
from headrace.cli.output.store import queues_view, stats_view, workers_view
from headrace.core.webhooks.delivery import TASK
from headrace.hub import HubOptions
from tests.contrib.prometheus.pages import samples
from tests.hub.live.listening import connected
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.until import until

OPTIONS = HubOptions(maintenance=False, webhook_allow=("127.0.0.0/8",), webhook_http=True)
NOBODY = "http://127.0.0.1:9/hook"
JOBS, SLOTS = 5, 2


def shown(page: str) -> str:
    """What a page says, without its tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(style|script|svg).*?</\1>", " ", page)).split())


def printed(view: object) -> str:
    out = Console(file=io.StringIO(), width=200)
    out.print(view)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


async def handed_in(app: App) -> bool:
    """Whether both workers have said what they finished, and how busy their slots were."""
    tasks = {row.task: row.totals for row in await app.stats.rollups(3600)}
    windows = (await app.stats.metrics()).windows
    return tasks.keys() >= {"resize", TASK} and windows["5m"].worker_utilisation is not None


async def prometheus(hub: Served) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    return samples((await hub.client.get("/metrics")).text)


async def overview(hub: Served) -> str:
    """The first page, once its metrics are there: a slow part of it comes with the next request."""
    page = ""

    async def complete() -> bool:
        nonlocal page
        page = shown((await hub.client.get("/", headers={"accept": "text/html"})).text)
        return "Queue depth, now" in page

    await until(complete)
    return page


@pytest.mark.every_engine
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_five_completed_jobs_with_an_unreachable_webhook(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BEAT", "1")
    monkeypatch.setenv("HEADRACE_LEASE", "30")
    app = App(url_of(kind, tmp_path))

    @app.task
    async def resize(image: str) -> str:
        return image

    async with serving(app, OPTIONS) as hub, app.worker(concurrency=SLOTS):
        await app.webhooks.add(NOBODY, events=["status_change"])
        for job in [await resize.submit(f"{n}.png") for n in range(JOBS)]:
            await job.result(timeout=60)
        await until(lambda: handed_in(app))

        stats = (await hub.client.get("/api/stats")).json()
        async with connected(hub) as socket:
            live = await socket.ask("subscribe_stats")
        for found in (stats, live):
            assert found["statuses"] == {"completed": JOBS}
            assert (found["ledger"]["accepted"], found["ledger"]["completed"]) == (JOBS, JOBS)
            assert (found["workers_alive"], found["own_workers_alive"], found["oldest_queued"]) == (1, 1, None)
            assert found["metrics"]["queue_depth"] == 0
            for window in found["metrics"]["windows"].values():
                assert (window["jobs"], window["success_rate"], window["retry_rate"]) == (JOBS, 1.0, 0.0)
                assert 0 <= window["average_queue_time"] < 60
                assert 0 <= window["average_processing_time"] < 60
                assert 0 <= window["worker_utilisation"] <= 1
            assert sum(found["own_statuses"].values()) >= JOBS
        [series] = (await hub.client.get("/api/charts")).json()["series"]
        assert (series["task"], series["total"]["completed"], series["total"]["failed"]) == ("resize", JOBS, 0)
        [series] = (await hub.client.get("/api/charts", params={"task": TASK})).json()["series"]
        assert series["total"]["failed"] >= 1
        workers = (await hub.client.get("/api/workers")).json()["items"]
        assert sorted((one["own"], one["concurrency"] == SLOTS) for one in workers) == [(False, True), (True, False)]

        front = await overview(hub)
        assert f"1 worker, {SLOTS} slots, 0 jobs run" in front
        assert "Success rate 100% of jobs, this hour" in front
        assert re.search(rf"Throughput [\d.]+ /min {JOBS} attempts in \d+ min", front)
        assert "Success rate 100% 100% 100%" in front
        assert "Retry rate 0% 0% 0%" in front
        assert "Dead letters 0 0 failed attempts this hour" in front
        rows = shown((await hub.client.get("/workers", headers={"accept": "text/html"})).text)
        assert rows.count("headrace's own") == 1

        page = await prometheus(hub)
        of = {"window": "5m"}.items()
        assert page["headrace_success_ratio"][frozenset(of)] == 1.0
        assert page["headrace_retry_ratio"][frozenset(of)] == 0.0
        assert page["headrace_queue_depth"] == {frozenset(): 0.0}
        assert sum(page["headrace_slots"].values()) == SLOTS
        assert page["headrace_workers"][frozenset({"state": "alive"}.items())] == 1
        assert sum(page["headrace_queue_jobs"].values()) == 0
        assert page["headrace_own_workers"] == {frozenset(): 1.0}
        assert sum(page["headrace_own_jobs"].values()) >= 1
        named = {dict(labels).get("task") for name in ("headrace_attempts_total",) for labels in page.get(name, {})}
        assert TASK not in named

        now = app.host.clock.now()
        text = printed(stats_view(await app.stats.counts(), now))
        assert re.search(rf"submitted\s+{JOBS} = 0 live \+ {JOBS} ended", text)
        assert re.search(r"success rate\s+100.0%\s+100.0%\s+100.0%", text)
        assert "1 alive" in text
        assert "headrace's own" in text
        assert printed(workers_view(await app.workers.list(), now)).count("headrace's own") == 1
        assert "headrace's own" in printed(queues_view(await app.queues.list(), now))
        [crew] = [one for one in await app.store.doctor(store=False) if one.name == "workers"]
        assert crew.message == "1 alive, and 1 of headrace's own"
