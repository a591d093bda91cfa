"""Webhooks over HTTP: from a subscription to a message, with a real hub, and what each key may see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from standardwebhooks import Webhook

from headrace.client.api.webhooks import webhook_credentials
from headrace.core.auth.api_keys import Scope
from headrace.core.webhooks.delivery import TASK
from headrace.hub import HubOptions
from tests.hub.serving import Served, serving
from tests.hub.webhooks.receiving import receiving
from tests.support.apps import Sums
from tests.support.until import until

URL = "https://hooks.example/jobs?token=abc"


@pytest.fixture
async def hub() -> AsyncIterator[Served]:
    async with serving(Sums("memory://").app) as served:
        yield served


async def made(hub: Served, **fields: Any) -> dict[str, Any]:
    answer = await hub.client.post("/api/webhooks", json={"url": URL, **fields})
    assert answer.status_code == 201, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def test_from_a_subscription_to_a_message(tmp_path: Path) -> None:
    sums = Sums(f"sqlite:///{tmp_path}/jobs.db")
    options = HubOptions(webhook_http=True, webhook_allow=("127.0.0.0/8",), maintenance=False)
    async with receiving() as receiver, serving(sums.app, options) as hub, sums.app.worker():
        url = f"http://127.0.0.1:{receiver.port}/"
        given = await made(hub, url=url, events=["completion"], tasks=["add"])
        assert (await hub.client.get("/readyz")).json()["loops"]["webhooks"] == "ok"
        job = await sums.add.submit(1, 2)
        await until(lambda: receiver.requests)
        [request] = receiver.requests
        message = Webhook(given["secret"]).verify(request.body, request.headers)
        assert (message["type"], message["data"]["result"]) == ("job.completed", 3)
        await until(lambda: _has_ended(hub))
        query = {"webhook": given["webhook"]["id"]}
        [delivery] = (await hub.client.get("/api/webhooks/deliveries", params=query)).json()["items"]
        assert (delivery["task"], delivery["status"]) == (TASK, "completed")
        [same] = (await hub.client.get("/api/webhooks/deliveries", params={"job": str(job.id)})).json()["items"]
        assert same == delivery
        again = await hub.client.post(f"/api/webhooks/deliveries/{delivery['id']}/redeliver")
        assert again.status_code == 202
        await until(lambda: len(receiver.requests) == 2)
        assert receiver.requests[1].headers["webhook-id"] == request.headers["webhook-id"]
        tested = await hub.client.post(f"/api/webhooks/{given['webhook']['id']}/test")
        assert tested.status_code == 202
        await until(lambda: len(receiver.requests) == 3)
        assert (await hub.client.post(f"/api/webhooks/deliveries/{job.id}/redeliver")).status_code == 409


async def _has_ended(hub: Served) -> bool:
    page = (await hub.client.get("/api/webhooks/deliveries", params={"status": "completed"})).json()
    return len(page["items"]) == 1


async def test_a_subscription_is_looked_at_changed_and_removed(hub: Served) -> None:
    given = await made(hub, description="ours", bearer="tok")
    path = f"/api/webhooks/{given['webhook']['id']}"
    [listed] = (await hub.client.get("/api/webhooks")).json()["items"]
    assert listed == given["webhook"] == (await hub.client.get(path)).json()
    assert (listed["url"], listed["on"], listed["bearer"], listed["created_by"]) == (URL, True, True, "local")
    changed = (await hub.client.patch(path, json={"on": False, "events": ["progress"], "tasks": ["add"]})).json()
    assert (changed["on"], changed["events"], changed["tasks"]) == (False, ["progress"], ["add"])
    assert changed["off_because"] == "switched off by local"
    turned = await hub.client.post(path + "/rotate", json={"keep": 60})
    assert turned.json()["secret"] != given["secret"]
    assert turned.headers["cache-control"] == "no-store"
    for answer in (await hub.client.get(path), await hub.client.get("/api/webhooks")):
        assert not any(secret in answer.text for secret in ('tok"', given["secret"], turned.json()["secret"]))
    assert (await hub.client.delete(path)).status_code == 204
    for method, more in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/test"), ("POST", "/rotate")):
        answer = await hub.client.request(method, path + more, json={})
        assert (answer.status_code, answer.json()["title"]) == (404, "There is no such webhook")


async def test_the_words_of_the_page_are_taken(hub: Served) -> None:
    page = {
        "webhook_url": URL,
        "events": ["status_change", "progress", "completion"],
        "authentication": {"type": "bearer_token", "token": "client-webhook-token"},
    }
    answer = await hub.client.post("/api/webhooks", json=page)
    assert answer.status_code == 201
    id = answer.json()["webhook"]["id"]
    assert (await webhook_credentials(hub.app, id)).bearer == "client-webhook-token"
    assert len((await hub.app.webhooks.get(id)).events) == 7
    twice = await hub.client.post("/api/webhooks", json={**page, "url": "https://other.example/"})
    assert (twice.status_code, "different things" in twice.text) == (400, True)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": "https://127.0.0.1/"},
        {"url": "https://[::1]/"},
        {"url": "https://localhost/"},
        {"url": "http://hooks.example/"},
        {"url": "ftp://hooks.example/"},
        {"url": URL, "events": ["nothing"]},
        {"url": URL, "secret": "abc"},
        {"url": URL, "colour": "red"},
        {"url": URL, "tasks": [""]},
    ],
)
async def test_what_cannot_be_subscribed_is_refused(hub: Served, body: dict[str, Any]) -> None:
    answer = await hub.client.post("/api/webhooks", json=body)
    assert answer.status_code == 400, answer.text
    assert await hub.app.webhooks.list() == []


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest", "http://hooks.example/", "x"]
)
async def test_a_subscription_is_moved_to_no_private_address(hub: Served, url: str) -> None:
    given = await made(hub)
    path = f"/api/webhooks/{given['webhook']['id']}"
    answer = await hub.client.patch(path, json={"url": url, "description": "moved"})
    assert answer.status_code == 400, answer.text
    assert (await hub.client.get(path)).json() == given["webhook"], "nothing of it is changed"
    moved = await hub.client.patch(path, json={"url": "https://elsewhere.example/"})
    assert (moved.status_code, moved.json()["url"]) == (200, "https://elsewhere.example/")


async def test_who_may_read_does_not_see_addresses_that_may_be_secrets() -> None:
    app = Sums("memory://").app
    async with app:
        kinds: dict[str, list[Scope]] = {
            "reader": ["read"],
            "actor": ["read", "act"],
            "boss": ["read", "act", "admin"],
        }
        texts = {name: (await app.keys.create(name, scopes)).text for name, scopes in kinds.items()}
        mine = (await app.keys.create("mine", ["read", "act"], customer="acme")).text
        theirs = (await app.webhooks.add(URL)).webhook.id
        async with serving(app) as hub:

            async def ask(key: str, method: str, path: str, **more: Any) -> Any:
                headers = {"authorization": f"Bearer {key}"}
                return await hub.client.request(method, path, headers=headers, **more)

            for name, shown in (("reader", "https://hooks.example/…"), ("boss", URL)):
                [one] = (await ask(texts[name], "GET", "/api/webhooks")).json()["items"]
                assert one["url"] == shown
            for method, path in (("POST", ""), ("PATCH", f"/{theirs}"), ("DELETE", f"/{theirs}")):
                answer = await ask(texts["actor"], method, f"/api/webhooks{path}", json={"url": URL})
                assert (answer.status_code, "admin" in answer.text) == (403, True)
            own = await ask(mine, "POST", "/api/webhooks", json={"url": URL})
            assert own.json()["webhook"]["customer"] == "acme"
            assert [one["url"] for one in (await ask(mine, "GET", "/api/webhooks")).json()["items"]] == [URL]
            assert (await ask(mine, "GET", f"/api/webhooks/{theirs}")).status_code == 404


async def test_a_submit_by_the_words_of_the_page_is_told_of(tmp_path: Path) -> None:
    sums = Sums(f"sqlite:///{tmp_path}/jobs.db")
    options = HubOptions(webhook_http=True, webhook_allow=("127.0.0.0/8",), maintenance=False)
    async with receiving() as receiver, serving(sums.app, options) as hub, sums.app.worker():
        page = {
            "type": "add",
            "payload": {"a": 1},
            "customer_id": "customer-123",
            "webhook_url": f"http://127.0.0.1:{receiver.port}/job-notifications",
            "events": ["status_change", "progress", "completion"],
            "authentication": {"type": "bearer_token", "token": "client-webhook-token"},
        }
        answer = await hub.client.post("/api/jobs", json=page)
        assert answer.status_code == 201, answer.text
        await until(lambda: len(receiver.requests) == 3)
        bodies = [msgspec.json.decode(one.body) for one in receiver.requests]
        assert [one["type"] for one in bodies] == ["job.submitted", "job.started", "job.completed"]
        assert [one["data"]["status"] for one in bodies] == ["queued", "in_progress", "completed"]
        assert {one["data"]["job_id"] for one in bodies} == {answer.json()["job_id"]}
        assert {one.headers["authorization"] for one in receiver.requests} == {"Bearer client-webhook-token"}
        record = (await hub.client.get(f"/api/jobs/{answer.json()['job_id']}")).text
        assert "client-webhook-token" not in record
        assert "job-notifications" not in record


@pytest.mark.parametrize("url", ["https://169.254.169.254/latest", "https://[::1]/", "http://hooks.example/"])
async def test_a_submit_that_names_a_private_address_is_refused(hub: Served, url: str) -> None:
    answer = await hub.client.post("/api/jobs", json={"task": "add", "payload": {"a": 1}, "webhook": url})
    assert answer.status_code == 400, answer.text
    assert await hub.app.jobs.count() == 0


async def test_messages_come_in_the_words_of_their_webhook(tmp_path: Path) -> None:
    sums = Sums(f"sqlite:///{tmp_path}/jobs.db")
    options = HubOptions(webhook_http=True, webhook_allow=("127.0.0.0/8",), maintenance=False)
    async with receiving() as receiver, serving(sums.app, options) as hub:
        address = f"http://127.0.0.1:{receiver.port}/"

        made = await hub.client.post("/api/webhooks", json={"url": f"{address}theirs", "words": "jobmaster"})
        assert made.json()["webhook"]["words"] == "jobmaster"
        assert (await hub.client.post("/api/webhooks", json={"url": f"{address}ours"})).status_code == 201
        # The webhook of a job speaks as the submit is answered, unless it names words itself.
        body = {"task": "add", "payload": {"a": 1}, "webhook": f"{address}named"}
        await hub.client.post("/api/jobs?words=osqueue", json=body)
        hook = {"url": f"{address}chosen", "words": "surefire"}
        await hub.client.post("/api/jobs?words=osqueue", json=body | {"webhook": hook})
        async with sums.app.worker():
            await until(lambda: len(receiver.requests) == 2 * 3 + 2 * 2 * 3)
        heard = dict[str, set[str]]()
        for one in receiver.requests:
            heard.setdefault(one.line.split()[1], set()).add(msgspec.json.decode(one.body)["data"]["status"])
        assert heard == {
            "/ours": {"queued", "running", "completed"},
            "/theirs": {"AssignedToBucket", "Processing", "Succeeded"},
            "/named": {"unclaimed", "in_progress", "completed"},
            "/chosen": {"Pending", "Running", "Completed"},
        }
        id = made.json()["webhook"]["id"]
        changed = await hub.client.patch(f"/api/webhooks/{id}", json={"words": "emprops"})
        assert changed.json()["words"] == "emprops"
        assert (await hub.client.patch(f"/api/webhooks/{id}", json={"on": True})).json()["words"] == "emprops"
        found = (await hub.client.get("/api/webhooks/deliveries?words=emprops&status=timeout")).json()
        assert found == {"items": [], "cursor": None}
        for method, path in (("POST", ""), ("PATCH", f"/{id}")):
            refused = await hub.client.request(
                method, f"/api/webhooks{path}", json={"url": address, "words": "klingon"}
            )
            assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "words")
