"""Jobs of workers behind a hub that must report: what counts as a sign, and when a silent one is over."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Status
from headrace.core.job import Job
from headrace.core.lifecycle.loss import lose
from headrace.core.status import Cause, Outcome
from headrace.errors import Unavailable
from headrace.hub import HubOptions
from tests.hub.remote_workers.working import submitted, work
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.until import until


async def assigned(hub: Served, **fields: Any) -> dict[str, Any]:
    """A job with these fields, as its worker was given it."""
    id = await submitted(hub.client, **{"requirements": {}, **fields})
    given = await work(hub.client, "claim_job", worker_id="w", tasks=["text_to_image"], max_concurrent_jobs=9, wait=20)
    assert given["job_id"] == id
    return given


async def test_jobs_of_the_page_must_report_every_minute_and_others_as_they_say(tmp_path: Path) -> None:
    async with serving(url_of("sqlite", tmp_path)) as hub:
        for fields, heartbeat in (({}, 60.0), ({"heartbeat": 5}, 5.0), ({"heartbeat": None}, None)):
            given = await assigned(hub, **fields)
            assert given["heartbeat"] == heartbeat
            job = await hub.app.jobs.get(given["job_id"])
            assert (job.heartbeat, job.remote_heartbeat) == (fields.get("heartbeat"), 60.0 if not fields else None)
        answer = await hub.client.post("/api/jobs", json={"task": "text_to_image", "payload": {}})
        job = await hub.app.jobs.get(answer.json()["job_id"])
        assert job.heartbeat is job.remote_heartbeat is None, "ours need not"
        answer = await hub.client.post("/api/jobs", json={"task": "text_to_image", "payload": {}, "heartbeat": 0.01})
        assert answer.status_code == 400


async def test_all_that_a_worker_says_of_its_job_is_a_sign_and_its_own_heartbeat_is_none(tmp_path: Path) -> None:
    async with serving(url_of("sqlite", tmp_path)) as hub:
        given = await assigned(hub, heartbeat=0.3)
        lease, job_id = given["lease"], given["job_id"]

        async def deadline() -> datetime:
            job = await hub.app.jobs.get(job_id)
            assert job.act_by is not None
            return job.act_by

        await work(hub.client, "start_job", lease=lease)
        seen = await deadline()
        await asyncio.sleep(0.12)
        await work(hub.client, "heartbeat", token=given["token"], held=[job_id])
        await asyncio.sleep(0.6)  # longer than the hub takes to write what it has kept back
        assert await deadline() == seen
        for message, fields in (
            ("update_job_progress", {"progress": 10}),
            ("job_log", {"lines": [{"message": "one"}], "first": 1}),
            ("job_items", {"items": [1], "first": 1}),
            ("job_step", {"name": "load"}),
        ):
            await work(hub.client, message, lease=lease, **fields)
            before = seen

            async def moved(before: datetime = before) -> bool:
                return await deadline() > before

            await until(moved, what=f"{message}, with nothing after it")
            seen = await deadline()
            await asyncio.sleep(0.12)
        assert (await hub.app.jobs.get(job_id)).status is Status.RUNNING


async def test_deadlines_of_silent_workers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"BEAT": "2", "LEASE": "6", "ACCEPT": "3"}.items():
        monkeypatch.setenv(f"HEADRACE_{name}", seconds)
    app = App(url_of("sqlite", tmp_path))
    async with serving(app, HubOptions(webhooks=False)) as hub:
        offered = await assigned(hub)
        limited, silent, lives = [
            await assigned(hub, **fields)
            for fields in (
                {"requirements": {"timeout_minutes": 3 / 60}},
                {"heartbeat": 3},
                {"heartbeat": 3},
            )
        ]
        for job in (limited, silent, lives):
            await work(hub.client, "start_job", lease=job["lease"])
        held = {job["job_id"] for job in (offered, limited, silent, lives)}
        done = asyncio.Event()

        async def works() -> None:
            while not done.is_set():
                await work(hub.client, "heartbeat", token=offered["token"], held=sorted(held))
                await work(hub.client, "update_job_progress", lease=lives["lease"], progress=50)
                await asyncio.sleep(0.5)

        async def over(given: dict[str, Any], *statuses: Status) -> Job:
            async def left() -> bool:
                return (await app.jobs.get(given["job_id"])).status in statuses

            await until(left, within=30)
            held.discard(given["job_id"])
            return await app.jobs.get(given["job_id"])

        working = asyncio.create_task(works())
        back = await over(offered, Status.QUEUED)
        assert back.updated_at is not None
        assert 3.0 <= (back.updated_at - back.created_at).total_seconds() <= 5.5
        for given, said in (
            (limited, "the attempt ran out of time (3 s)"),
            (silent, "the attempt reported nothing for 3 s"),
        ):
            lost = await over(given, Status.RETRYING, Status.QUEUED)
            [attempt] = (await app.jobs.history(lost.id)).attempts
            assert attempt.started_at is not None
            assert attempt.error is not None
            assert (attempt.outcome, attempt.error.message, lost.charged) == (Outcome.TIMED_OUT, said, 1)
            assert 3 + 7 < (attempt.finished_at - attempt.started_at).total_seconds() <= 3 + 10
        done.set()
        await working
        await work(hub.client, "complete_job", lease=lives["lease"], result=1)
        assert (await app.jobs.get(lives["job_id"])).status is Status.COMPLETED


async def test_a_sign_that_was_not_stored_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(url_of("sqlite", tmp_path)) as hub:
        given = await assigned(hub, heartbeat=600)
        await work(hub.client, "start_job", lease=given["lease"])
        [held] = [held for worker in hub.hub.fleet.workers.values() for held in worker.held.values()]
        assert held._signs is not None
        held._signs._written_at -= 300
        held._signs.last_at = held.writer.host.clock.monotonic()

        async def refuses(*args: object) -> Job:
            raise Unavailable("not now")

        with monkeypatch.context() as patch:
            patch.setattr(held, "written", refuses)
            with pytest.raises(Unavailable):
                await held.write_sign()
        assert held.sign_due
        await held.write_sign()
        assert not held.sign_due


async def test_a_sign_that_cannot_be_written_delays_no_beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(url_of("sqlite", tmp_path)) as hub:
        given = await assigned(hub, heartbeat=600)
        await work(hub.client, "start_job", lease=given["lease"])
        [held] = [held for worker in hub.hub.fleet.workers.values() for held in worker.held.values()]
        assert held._signs is not None
        reached = asyncio.Event()

        async def waits(*args: object) -> Job:
            reached.set()
            await asyncio.Event().wait()
            raise AssertionError

        monkeypatch.setattr(held, "written", waits)
        held._signs._written_at -= 300
        held._signs.last_at = held.writer.host.clock.monotonic()
        async with asyncio.timeout(20):
            await reached.wait()
            token = (await work(hub.client, "register_worker", worker_id="another", tasks=["x"]))["token"]
            assert (await work(hub.client, "heartbeat", token=token))["type"] == "heartbeat_acknowledged"


async def test_a_worker_that_lost_a_job_by_silence_was_the_last_to_fail_it(tmp_path: Path) -> None:
    async with serving(url_of("sqlite", tmp_path)) as hub:
        given = await assigned(hub)
        await work(hub.client, "start_job", lease=given["lease"])
        app, fleet = hub.app, hub.hub.fleet
        [worker] = fleet.workers.values()
        job = await app.jobs.get(given["job_id"])
        rules = app.session.engine.rules
        await app.session.writer.apply(lose(job, Cause.TIMEOUT, app.host.clock.now(), 0.5, rules))
        await fleet.beats.look(worker)
        assert fleet.claims.failures._worker_of == {job.id: worker.who}
