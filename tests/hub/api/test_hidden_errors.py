"""Errors that are kept from customers: on no way out of the hub is there a word of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace import App, GiveUp, JobHandle, Retry
from headrace.hub import HubOptions
from headrace.hub.operations import OPERATIONS
from tests.hub.auth.test_login import browser_of, log_in
from tests.hub.live.listening import connected, listening
from tests.hub.serving import Served, serving
from tests.hub.webhooks.receiving import receiving
from tests.support.until import until

SECRET = "HUSHED at db.internal"
GOES_ON = Retry(5, backoff=[3600], jitter=False)


@dataclass
class Scene:
    """A hub with a customer whose jobs failed, or are about to."""

    hub: Served
    app: App
    key: str
    operator: str
    failed: JobHandle[Any]
    retrying: JobHandle[Any]

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}


@asynccontextmanager
async def scene(folder: Path, errors: Any = "hidden") -> AsyncIterator[Scene]:
    app = App(f"sqlite:///{folder}/jobs.db")

    @app.task(retry=Retry(0))
    async def broken(why: str) -> None:
        try:
            raise KeyError(f"{SECRET}: cause")
        except KeyError as error:
            raise (GiveUp(SECRET) if why == "gives up" else ValueError(SECRET)) from error

    options = HubOptions(
        maintenance=False, errors=errors, webhook_allow=("127.0.0.0/8",), webhook_http=True, access_log=False
    )
    async with serving(app, options) as hub, app.worker(queues=["default"]):
        key = await app.keys.create("shop", ["read", "submit", "act"], customer="acme")
        operator = await app.keys.create("root", ["read", "submit", "act", "admin"])
        failed = await broken.options(customer="acme").submit("fails")
        retrying = await broken.options(customer="acme", retry=GOES_ON).submit("again")
        await until(lambda: _tried(failed, retrying))
        yield Scene(hub, app, key.text, operator.text, failed, retrying)


async def _tried(*handles: JobHandle[Any]) -> bool:
    return all([(await one.refresh()).error is not None for one in handles])


def hides(said: str, where: str) -> None:
    for word in ("HUSHED", "internal", "KeyError", "ValueError", "GiveUp", "Traceback", "test_hiding"):
        assert word not in said, (where, said)


async def test_no_operation_tells_a_customer_of_an_error(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        asked = 0
        for operation in OPERATIONS:
            if operation.method != "GET" or operation.live or operation.bounded == "operator":
                continue
            for job in (it.failed, it.retrying):
                path = operation.path.replace("{id}", str(job.id))
                answer = await it.hub.client.get(path, headers=it.headers)
                hides(answer.text, operation.name)
                asked += answer.status_code == 200
        assert asked > 10
        shown = (await it.hub.client.get(f"/api/jobs/{it.failed.id}", headers=it.headers)).json()["error"]
        assert shown["details"] == {"reference": f"{it.failed.id}/1"}
        for act, body in (("rerun", {}), ("retry", {"delay": 3600}), ("cancel", {})):
            answer = await it.hub.client.post(f"/api/jobs/{it.failed.id}/{act}", json=body, headers=it.headers)
            assert answer.status_code in (200, 201, 202), (act, answer.text)
            hides(answer.text, act)


async def test_a_text_is_not_looked_for_in_hidden_errors(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, browser_of(it.hub) as browser:
        for path in ("/api/jobs?text=HUSHED", "/api/jobs/count?text=HUSHED"):
            answer = await it.hub.client.get(path, headers=it.headers)
            assert (answer.status_code, "errors are kept" in answer.json()["detail"]) == (403, True)
        asked = {"act": "cancel", "filter": {"text": "HUSHED"}, "dry_run": True}
        assert (await it.hub.client.post("/api/jobs/act", json=asked, headers=it.headers)).status_code == 403
        await log_in(browser, it.key)
        assert (await browser.get("/jobs?text=HUSHED")).status_code == 403
        assert (await browser.get(f"/find?q={str(it.failed.id)[-8:]}")).status_code in (200, 303)


async def test_no_stream_and_no_socket_tells_of_an_error(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        path = f"/api/jobs/{it.failed.id}/events"
        async with listening(it.hub, path, **it.headers) as stream:
            told = [one async for one in _all(stream)]
        assert told[-1].data["status"] == "failed"
        hides(str(told), "events")
        async with listening(it.hub, "/api/events", **it.headers) as stream, connected(it.hub) as socket:
            await socket.ask("authenticate", key=it.key)
            await socket.ask("subscribe_job", job_id=str(it.retrying.id))
            await it.app.jobs.handle(it.retrying.id).run_now()
            hides(str(await socket.until("job_retry")), "socket")
            await it.app.jobs.handle(it.retrying.id).resolve(error=SECRET)
            hides(str(await socket.until("job_error")), "socket")
            while (event := await stream.next()) is not None:
                hides(str(event), "feed")
                if event.data.get("status") == "failed":
                    break


async def _all(stream: Any) -> AsyncIterator[Any]:
    while (event := await stream.next()) is not None:
        yield event


async def test_no_webhook_tells_a_customer_of_an_error(tmp_path: Path) -> None:
    async with receiving() as receiver, receiving() as ours, scene(tmp_path) as it:
        url = f"http://127.0.0.1:{receiver.port}/"
        made = await it.app.webhooks.add(url, events=["status_change"], customer="acme")
        await it.app.webhooks.add(f"http://127.0.0.1:{ours.port}/", events=["status_change"])
        await it.app.tasks["broken"].options(customer="acme").submit("gives up")
        await until(lambda: any(b"job.failed" in one.body for one in receiver.requests))
        await until(lambda: any(b"job.failed" in one.body for one in ours.requests))
        for request in receiver.requests:
            hides(request.body.decode(), "webhook")
        assert any(SECRET.encode() in one.body for one in ours.requests), "the operator's own say it"
        asked = {"webhook": made.webhook.id}
        answer = await it.hub.client.get("/api/webhooks/deliveries", params=asked, headers=it.headers)
        assert answer.status_code == 200
        hides(answer.text, "deliveries")
        for delivery in (await it.app.webhooks.deliveries(customer="acme")).items:
            hides((await it.hub.client.get(f"/api/jobs/{delivery.id}", headers=it.headers)).text, "a delivery")


async def test_no_page_shows_a_customer_an_error(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, browser_of(it.hub) as browser:
        await log_in(browser, it.key)
        pages = ["/jobs", "/jobs.json", "/jobs.csv", "/dead", "/dead?retrying=1", "/batches"]
        pages += [f"/jobs/{it.failed.id}", f"/jobs/{it.retrying.id}", f"/jobs/{it.failed.id}/log"]
        for path in pages:
            for live in ({}, {"x-headrace-live": "1"}):
                answer = await browser.get(path, headers=live)
                assert answer.status_code == 200, path
                hides(answer.text, path)
        assert f"{it.failed.id}/1" in (await browser.get(f"/jobs/{it.failed.id}")).text


@pytest.mark.parametrize("errors", ["shown", "hidden"])
async def test_the_operator_sees_all_and_customers_do_unless_it_is_hidden(tmp_path: Path, errors: str) -> None:
    async with scene(tmp_path, errors) as it:
        path = f"/api/jobs/{it.failed.id}"
        told = (await it.hub.client.get(path, headers={"authorization": f"Bearer {it.operator}"})).json()["error"]
        assert (told["type"], told["message"]) == ("ValueError", SECRET)
        assert (SECRET in (await it.hub.client.get(path, headers=it.headers)).text) is (errors == "shown")
