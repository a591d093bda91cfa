"""The dashboard of a hub: logging in by key, what the session is worth, and a hub without keys."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from headrace import App
from headrace.core.auth.sessions import session_digest
from headrace.core.defaults import DASHBOARD_SESSION_LIFETIME
from headrace.core.webhooks.delivery import TASK
from headrace.hub import HubOptions
from headrace.hub.auth.login import SESSION
from headrace.testing.clock import FakeClock
from tests.hub.serving import Served, serving
from tests.support.apps import Sums
from tests.support.until import until

FORM = {"content-type": "application/x-www-form-urlencoded"}


@asynccontextmanager
async def browser_of(served: Served) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that keeps cookies, and sends no JSON."""
    async with httpx2.AsyncClient(base_url=served.address, timeout=20, trust_env=False) as client:
        yield client


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def add(a: int) -> int:
        return a

    async with serving(app) as made:
        yield made


async def log_in(client: httpx2.AsyncClient, key: str, there: str = "") -> httpx2.Response:
    """Do what the form does."""
    page = await client.get("/login", params={"next": there} if there else {})
    found = re.search(r'name="token" value="([^"]+)"', page.text)
    assert found is not None
    data = {"token": found[1], "key": key, "next": there}
    return await client.post("/login", data=data)


async def token_of(client: httpx2.AsyncClient) -> str:
    found = re.search(r'name="headrace-token" content="([^"]+)"', (await client.get("/jobs")).text)
    return found[1] if found else ""


async def test_a_hub_without_keys_needs_no_login(served: Served) -> None:
    async with browser_of(served) as client:
        assert (await client.get("/")).status_code == 200
        assert (await client.get("/login")).headers["location"] == "/"
        assert (await client.get("/", headers={"host": "evil.example"})).status_code == 403
        foreign = {"origin": "http://evil.example", "content-type": "application/json"}
        assert (await client.post("/act", headers=foreign, content="{}")).status_code == 403
        assert (await client.get("/no-such-page")).headers["content-type"] == "application/problem+json"


async def test_whoever_has_a_key_logs_in_and_out(served: Served) -> None:
    made = await served.app.keys.create("ops", ["read", "act"])
    async with browser_of(served) as client:
        await until(lambda: served.hub.authenticator.keyed)
        sent = await client.get("/jobs?status=failed")
        assert (sent.status_code, sent.headers["location"]) == (303, "/login?next=%2Fjobs%3Fstatus%3Dfailed")
        assert (await client.get("/jobs", headers={"x-headrace-live": "1"})).status_code == 401
        assert (await client.get("/session")).json() == {"session": False}
        wrong = await log_in(client, "hr_" + "x" * 43)
        assert wrong.status_code == 401
        assert "There is no such key" in wrong.text
        came = await log_in(client, made.text, "/jobs?status=failed")
        assert (came.status_code, came.headers["location"]) == (303, "/jobs?status=failed")
        cookie = next(one for one in came.headers.get_list("set-cookie") if one.startswith(SESSION)).lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert f"max-age={int(DASHBOARD_SESSION_LIFETIME.total_seconds())}" in cookie
        assert made.text.lower() not in cookie
        page = await client.get("/jobs")
        assert page.status_code == 200
        assert "ops" in page.text
        assert (await client.get("/session")).json() == {"session": True}
        assert (await client.post("/logout", data={"token": "forged"})).status_code == 403
        assert (await client.post("/logout", data={"token": await token_of(client)})).status_code == 303
        assert (await client.get("/jobs")).status_code == 303


async def test_after_a_few_wrong_keys_one_has_to_wait_and_is_told_how_long(tmp_path: Path) -> None:
    clock = FakeClock()
    app = App(f"sqlite:///{tmp_path}/jobs.db", clock=clock)
    async with app:
        made = await app.keys.create("ops", ["read"])
        async with serving(app, HubOptions(maintenance=False, webhooks=False)) as served, browser_of(served) as client:
            wrong = "hr_" + "x" * 43
            assert [(await log_in(client, wrong)).status_code for _ in range(5)] == [401] * 5
            closed = await log_in(client, made.text)
            assert (closed.status_code, closed.headers["retry-after"]) == (429, "12"), "nor is a right one looked at"
            assert "Too many wrong keys came from your address. Wait 12 s" in closed.text
            assert SESSION not in client.cookies
            clock.advance(12)
            assert (await log_in(client, made.text)).status_code == 303
            assert (await client.get("/jobs")).status_code == 200


async def test_a_session_ends_with_its_key(served: Served) -> None:
    made = await served.app.keys.create("ops", ["read"])
    async with browser_of(served) as client:
        await until(lambda: served.hub.authenticator.keyed)
        await log_in(client, made.text)
        assert (await client.get("/jobs")).status_code == 200
        await served.app.keys.revoke("ops")
        await served.app.keys.create("ops", ["read"])  # another key of this name is another key
        await until(lambda: made.key.prefix not in served.hub.authenticator._holders)
        assert (await client.get("/jobs")).status_code == 303


async def test_a_session_outlives_no_key_that_expires(tmp_path: Path) -> None:
    clock = FakeClock()
    app = App(f"sqlite:///{tmp_path}/jobs.db", clock=clock)

    @app.task
    async def add(a: int) -> int:
        return a

    async with app:
        made = await app.keys.create("ops", ["read", "act"], expires=DASHBOARD_SESSION_LIFETIME / 2)
        job = await add.options(delay=2 * DASHBOARD_SESSION_LIFETIME.total_seconds()).submit(1)
        async with serving(app, HubOptions(maintenance=False, webhooks=False)) as served, browser_of(served) as client:
            await log_in(client, made.text)
            token = {"x-headrace-token": await token_of(client)}
            clock.advance(DASHBOARD_SESSION_LIFETIME.total_seconds() / 2 - 1)
            assert (await client.get("/jobs")).status_code == 200
            clock.advance(1)
            assert (await client.get("/jobs")).status_code == 303
            assert (await client.get("/session")).json() == {"session": False}
            body = {"act": "job", "verb": "cancel", "id": str(job.id)}
            assert (await client.post("/act", json=body, headers=token)).status_code == 401
            assert (await job.refresh()).status == "scheduled"


async def test_a_session_ends_after_a_while_and_cannot_be_forged(tmp_path: Path) -> None:
    clock = FakeClock()
    app = App(f"sqlite:///{tmp_path}/jobs.db", clock=clock)
    async with app:
        made = await app.keys.create("ops", ["read"])
        async with serving(app, HubOptions(maintenance=False, webhooks=False)) as served, browser_of(served) as client:
            await log_in(client, made.text)
            value = client.cookies[SESSION]
            prefix, _, chance = value.partition(".")
            for forged in (
                f"{prefix}.{chance[:-1]}",
                f"{prefix}.{chance}x",
                f"{prefix}.",
                f"{prefix}.{session_digest(value)}",
                f"hr_xxxxxxxx.{chance}",
                chance,
                "....",
                "",
            ):
                got = await client.get("/jobs", headers={"cookie": f"{SESSION}={forged}"})
                assert got.status_code == 303, forged
            assert (await client.get("/jobs")).status_code == 200
            clock.advance(DASHBOARD_SESSION_LIFETIME.total_seconds() + 1)
            assert (await client.get("/jobs")).status_code == 303


@pytest.mark.parametrize(
    "there", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
async def test_a_login_leads_nowhere_else(served: Served, there: str) -> None:
    made = await served.app.keys.create("ops", ["read"])
    async with browser_of(served) as client:
        await until(lambda: served.hub.authenticator.keyed)
        assert (await log_in(client, made.text, there)).headers["location"] == "/"


async def test_a_login_needs_the_form(served: Served) -> None:
    made = await served.app.keys.create("ops", ["read"])
    async with browser_of(served) as client:
        await until(lambda: served.hub.authenticator.keyed)
        for headers in ({}, {"sec-fetch-site": "cross-site"}):
            answer = await client.post("/login", data={"key": made.text, "token": "x"}, headers=headers)
            assert answer.status_code == 401
            assert SESSION not in client.cookies


async def test_a_key_that_may_only_read_is_refused_every_act(served: Served) -> None:
    reader = await served.app.keys.create("reader", ["read"])
    handle = await served.app.tasks["add"].options(delay=3600).submit(1)
    async with browser_of(served) as client:
        await until(lambda: served.hub.authenticator.keyed)
        await log_in(client, reader.text)
        page = (await client.get(f"/jobs/{handle.id}")).text
        assert "data-do" not in page
        token = await token_of(client)  # it has one, for logging out
        body = {"act": "job", "verb": "cancel", "id": str(handle.id)}
        answer = await client.post("/act", json=body, headers={"x-headrace-token": token})
        assert (answer.status_code, "scope act" in answer.json()["error"]) == (403, True)
        assert (await handle.refresh()).status == "scheduled"


async def test_the_key_of_a_customer_is_kept_to_its_jobs_and_caps(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def add(a: int) -> int:
        return a

    options = HubOptions(maintenance=False, webhooks=False, customer_jobs=1)
    async with serving(app, options) as served, browser_of(served) as client:
        key = await app.keys.create("ann", ["read", "act"], customer="ann")
        own = [await add.options(customer="ann", delay=3600).submit(number) for number in range(2)]
        other = await add.options(customer="bob").submit(3)
        for handle in own:
            await app.jobs.handle(handle.id).cancel()
        await until(lambda: served.hub.authenticator.keyed)
        await log_in(client, key.text)
        assert (await client.get("/")).headers["location"] == "/jobs"
        assert (await client.get("/workers")).status_code == 403
        assert (await client.get(f"/jobs/{other.id}")).status_code == 404
        token = {"x-headrace-token": await token_of(client)}
        answers = [
            await client.post("/act", json={"act": "job", "verb": "retry", "id": str(one.id)}, headers=token)
            for one in own
        ]
        assert [one.status_code for one in answers] == [200, 429]
        assert [event.by for event in (await app.jobs.history(own[0].id)).events] == [None, "ann"]


async def test_the_caps_of_a_customer_count_deliveries_apart(tmp_path: Path) -> None:
    sums = Sums(f"sqlite:///{tmp_path}/jobs.db")
    app, options = sums.app, HubOptions(maintenance=False, webhooks=False, customer_jobs=2, customer_messages=2)
    async with serving(app, options) as served, browser_of(served) as client:
        key = await app.keys.create("ann", ["read", "act"], customer="ann")
        added = await app.webhooks.add("https://hooks.example/", events=["failed"], tasks=["other"], customer="ann")
        webhook = added.webhook
        sent = [await app.webhooks.test(webhook.id) for _ in range(3)]
        await app.jobs.handle(sent[0].id).resolve(error="no answer")
        ended = [await sums.add.options(customer="ann").submit(number) for number in range(2)]
        for job in ended:
            await job.cancel()
        await until(lambda: served.hub.authenticator.keyed)
        await log_in(client, key.text)
        token = {"x-headrace-token": await token_of(client)}
        for body, status in (
            ({"act": "redeliver", "id": str(sent[0].id)}, 429),
            ({"act": "jobs", "verb": "retry", "filter": {"task": TASK}}, 429),
            ({"act": "jobs", "verb": "retry", "filter": {"task": "add"}}, 200),
        ):
            answer = await client.post("/act", json=body, headers=token)
            assert answer.status_code == status, (body, answer.text)
        assert [(await job.refresh()).ended for job in (sent[0], *ended)] == [True, False, False]


async def test_behind_a_proxy_everything_is_below_its_prefix(tmp_path: Path) -> None:
    options = HubOptions(maintenance=False, webhooks=False, root_path="/jobs-hub")
    async with serving(f"sqlite:///{tmp_path}/jobs.db", options) as served, browser_of(served) as client:
        page = await client.get("/jobs")  # as the proxy passes on what it was asked for
        addresses = re.findall(r'(?:href|src|action)="([^"#][^"]*)"', page.text)
        assert addresses
        for address in addresses:
            assert address.startswith("/jobs-hub/"), address
        assert "path=/jobs-hub" in page.headers["set-cookie"].lower()
        await served.app.keys.create("ops", ["read"])
        await until(lambda: served.hub.authenticator.keyed)
        sent = await client.get("/queues")
        assert sent.headers["location"] == "/jobs-hub/login?next=%2Fjobs-hub%2Fqueues"


async def test_after_the_login_people_are_where_they_wanted_to_be_whatever_its_name(served: Served) -> None:
    async with browser_of(served) as client:
        assert (await client.get("/login?next=/tasks/%E6%97%A5")).headers["location"] == "/tasks/%E6%97%A5"
        made = await served.app.keys.create("ops", ["read"])
        await until(lambda: served.hub.authenticator.keyed)
        sent = (await client.get("/tasks/%E6%97%A5%3Fb")).headers["location"]
        there = parse_qs(urlsplit(sent).query)["next"][0]
        assert (await log_in(client, made.text, there)).headers["location"] == "/tasks/%E6%97%A5%3Fb"
        for evil in ("//evil.example", "/\\evil.example", "https://evil.example", "/jobs\r\nX: y"):
            assert (await log_in_again(client, made.text, evil)).headers["location"] == "/"


async def log_in_again(client: httpx2.AsyncClient, key: str, there: str) -> httpx2.Response:
    client.cookies.clear()
    return await log_in(client, key, there)


async def test_behind_what_ends_tls_the_session_is_secure_too(served: Served) -> None:
    made = await served.app.keys.create("ops", ["read"])
    async with browser_of(served) as client:
        await until(lambda: served.hub.authenticator.keyed)
        page = await client.get("/login")
        found = re.search(r'name="token" value="([^"]+)"', page.text)
        assert found is not None
        origin = {"origin": f"https://{httpx2.URL(served.address).netloc.decode()}"}
        came = await client.post("/login", data={"token": found[1], "key": made.text}, headers=origin)
        assert came.status_code == 303
        assert "; Secure" in came.headers["set-cookie"]


async def test_a_path_that_is_none_has_the_headers_too(served: Served) -> None:
    async with browser_of(served) as client:
        for answer in (await client.get("/no-such-page"), await client.request("PUT", "/jobs")):
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
