"""The dashboard mounted in somebody's application: who may see and do what, and what every answer carries."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from headrace import App
from headrace.core.status import Status
from headrace.dashboard import Viewer, dashboard
from headrace.dashboard.actions import ACTS
from headrace.dashboard.actions.endpoint import Act
from headrace.dashboard.page import PageRequest
from headrace.dashboard.pages import VIEWS, dead_letters
from headrace.dashboard.renderer import Renderer
from headrace.dashboard.security import POLICY
from headrace.errors import ConfigError, Unavailable
from headrace.testing.clock import FakeClock
from tests.dashboard.shop import shop_app

ALL = frozenset({"read", "submit", "act", "admin"})


def who(request: Request) -> Any:
    """Whoever the header names."""
    match request.headers.get("x-who", "act"):
        case "ann":
            return Viewer(name="ann", scopes=frozenset({"read", "act"}), customer="ann")
        case "bound":
            return Viewer(name="bound", scopes=frozenset({"read", "act"}), tasks=frozenset({"add"}))
        case "submitter":
            return Viewer(name="sub", scopes=frozenset({"read", "submit"}), tasks=frozenset({"add"}))
        case scopes if scopes.startswith("scopes:"):
            given: Any = frozenset(scopes.removeprefix("scopes:").split(","))
            return Viewer(name="some", scopes=given)
        case other:
            return other


@asynccontextmanager
async def mounted(app: App) -> AsyncIterator[httpx2.AsyncClient]:
    """The dashboard at /dashboard of another application."""
    web = Starlette(routes=[Mount("/dashboard", dashboard(app, access=who))])
    transport = httpx2.ASGITransport(app=web)
    async with app, httpx2.AsyncClient(transport=transport, base_url="http://shop.example/dashboard") as client:
        yield client


async def act(client: httpx2.AsyncClient, as_who: str = "act", **body: Any) -> httpx2.Response:
    """What a page of this viewer would send."""
    headers = {"x-who": as_who}
    page = await client.get("/jobs", headers=headers)
    token = re.search(r'name="headrace-token" content="([^"]+)"', page.text)
    given = {"x-headrace-token": token[1] if token else "", "content-type": "application/json"}
    return await client.post("/act", headers=headers | given, content=json.dumps(body))


@pytest.fixture
async def app() -> App:
    return shop_app("memory://")


async def paths(app: App) -> list[str]:
    """The address of every page, with something on it."""
    job = await app.tasks["add"].options(delay=3600, tags=["a/b?c=d&e"]).submit(1)
    async with app.batch() as batch:
        batch.add(app.tasks["add"].options(delay=3600).draft(2))
    from headrace.core.schedule.rules import Every

    await app.schedules.set("often", Every(minutes=5), app.tasks["add"].draft(3))
    known = {
        "/jobs/{id}": job.id,
        "/jobs/{id}/log": job.id,
        "/batches/{id}": batch.id,
        "/queues/{name:path}": "default",
    }
    known |= {"/limits/{task:path}": "add", "/tasks/{name:path}": "add", "/schedules/{name:path}": "often"}
    return [re.sub(r"\{.*\}", str(known.get(view.path, "x")), view.path) for view in VIEWS]


def test_access_has_no_default(app: App) -> None:
    with pytest.raises(TypeError, match="access"):
        dashboard(app)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="no default"):
        dashboard(app, access=None)  # type: ignore[arg-type]


async def test_a_task_is_paused_and_resumed_on_its_page(app: App) -> None:
    async with mounted(app) as client:
        page = (await client.get("/tasks", headers={"x-who": "scopes:read,act"})).text
        assert "task.pause" in page
        assert "task.pause" not in (await client.get("/tasks", headers={"x-who": "scopes:read"})).text
        assert (await act(client, "scopes:read", act="task.pause", name="add")).status_code == 403
        assert (await act(client, "scopes:read,act", act="task.pause", name="add")).status_code == 200
        assert [one.name for one in await app.tasks.list() if one.paused] == ["add"]
        for path in ("/tasks", "/tasks/add"):
            page = (await client.get(path, headers={"x-who": "scopes:read,act"})).text
            assert "task.resume" in page, path
        assert (await act(client, "scopes:read,act", act="task.resume", name="add")).status_code == 200
        assert not any(one.paused for one in await app.tasks.list())


async def test_whoever_may_not_sees_nothing(app: App) -> None:
    async with mounted(app) as client:
        for path in await paths(app):
            answer = await client.get(path, headers={"x-who": "no"})
            assert (answer.status_code, "default" in answer.text) == (403, False), path
        assert (await act(client, "no", act="queue.pause", name="default")).status_code == 403
        assert (await client.get("/", headers={"x-who": "scopes:act"})).status_code == 403, (
            "who may not read sees nothing"
        )
        with pytest.raises(ConfigError, match="answered 'yes'"):
            await client.get("/", headers={"x-who": "yes"})


async def test_every_page_is_below_its_mount_and_carries_its_headers(app: App) -> None:
    async with mounted(app) as client:
        for path in [*await paths(app), "/jobs/no-such-job", "/queues/no-such-queue", "/jobs?created_after=never"]:
            answer = await client.get(path)
            assert answer.status_code in (200, 400, 404), path
            assert answer.headers["content-security-policy"] == POLICY, path
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            for address in re.findall(r'(?:href|src|action)="([^"#][^"]*)"', answer.text):
                assert address.startswith("/dashboard/"), (path, address)
            assert not re.search(r"\sstyle=|<style|<script(?![^>]*\ssrc=)|\son\w+=", answer.text), path
            assert "unsafe" not in POLICY


async def test_files_are_kept_by_browsers_under_a_name_that_changes_with_them(app: App) -> None:
    async with mounted(app) as client:
        page = (await client.get("/")).text
        script, _ = re.findall(r'src="/dashboard(/static/[^"]+\.js)"', page)
        answer = await client.get(script)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert len(answer.content) < 40_000
        old = await client.get("/static/old/dashboard.js")
        assert old.headers["cache-control"] == "no-cache"
        assert (await client.get("/static/x/../dashboard.py")).status_code == 404
        assert (await client.get("/static/x/guard.py")).status_code == 404


async def test_a_reader_sees_no_act_and_is_refused_all(app: App) -> None:
    async with mounted(app) as client:
        for path in await paths(app):
            text = (await client.get(path, headers={"x-who": "read"})).text
            assert "data-do" not in text, path
            assert "data-act=" not in text, path
            assert "headrace-token" not in text, path
        for name, one in ACTS.items():
            if one.scope != "read":
                assert (await act(client, "read", act=name)).status_code == 403, name
                assert (await act(client, "read", act=name, trial=True)).status_code == 403, name


@pytest.mark.parametrize(("name", "one"), ACTS.items())
async def test_each_act_needs_its_scope(app: App, name: str, one: Act) -> None:
    async with mounted(app) as client:
        lacking = await act(client, f"scopes:{','.join(sorted(ALL - {one.scope} | {'read'}))}", act=name)
        having = await act(client, f"scopes:{','.join({'read', 'act', one.scope})}", act=name)
    if one.scope == "read":
        assert lacking.status_code == 200
    else:
        assert lacking.status_code == 403
        assert one.scope in lacking.json()["error"]
    assert having.status_code in (200, 400), having.text  # its body is missing


async def test_an_act_needs_a_page_of_ours(app: App) -> None:
    async with mounted(app) as client:
        job = await app.tasks["add"].options(delay=3600).submit(1)
        page = await client.get("/jobs")
        found = re.search(r'name="headrace-token" content="([^"]+)"', page.text)
        assert found is not None
        token, body = found[1], json.dumps({"act": "job", "verb": "cancel", "id": str(job.id)})
        kind = {"content-type": "application/json"}
        good = kind | {"x-headrace-token": token}

        async def sent(headers: dict[str, str], cookies: bool = True) -> int:
            if cookies:
                return (await client.post("/act", headers=headers, content=body)).status_code
            async with httpx2.AsyncClient(transport=client._transport, base_url=client.base_url) as other:
                return (await other.post("/act", headers=headers, content=body)).status_code

        assert await sent(kind) == 403
        assert await sent(kind | {"x-headrace-token": token[:-1] + "x"}) == 403
        assert await sent(good | {"content-type": "text/plain"}) == 415
        assert await sent(good | {"origin": "http://evil.example"}) == 403
        assert await sent(good | {"sec-fetch-site": "cross-site"}) == 403
        assert await sent(good | {"sec-fetch-site": "same-site"}) == 403
        assert await sent(good | {"x-who": "scopes:read,act"}) == 403, "the token is of another viewer"
        assert await sent(good, cookies=False) == 403, "the token is of another browser"
        assert (await app.jobs.get(job.id)).status is Status.SCHEDULED
        assert await sent(good | {"origin": "http://shop.example"}) == 200
    cookie = page.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/dashboard" in cookie


async def test_a_viewer_of_one_customer_sees_and_touches_nothing_of_others(app: App) -> None:
    async with mounted(app) as client:
        add = app.tasks["add"]
        own = await add.options(customer="ann", delay=3600).submit(111)
        other = await add.options(customer="bob", delay=3600, tags=["secret"]).submit(222)
        async with app.batch() as batch:
            batch.add(add.options(customer="bob", delay=3600).draft(333))
        await app.jobs.handle(other.id).resolve(error="a secret of bob")
        await app.jobs.handle(other.id).retry(delay=3600)
        ann = {"x-who": "ann"}
        for view, path in zip(VIEWS, await paths(app), strict=True):
            if view.whose == "operator":
                answer = await client.get(path, headers=ann)
                assert answer.status_code in (303, 403), path
        for path in (f"/jobs/{other.id}", f"/batches/{batch.id}"):
            assert (await client.get(path, headers=ann)).status_code == 404
        for path in ("/jobs", "/jobs?customer=ann", "/jobs?text=222", "/jobs.json", "/jobs.csv", "/dead?retrying=1"):
            answer = await client.get(path, headers=ann)
            assert answer.status_code == 200, path
            text = answer.text
            assert str(other.id) not in text, path
            assert "secret" not in text, path
        assert str(own.id) in (await client.get("/jobs", headers=ann)).text
        seen = await client.get(f"/find?q={other.id}", headers=ann | {"accept": "application/json"})
        assert seen.json() == []
        assert str(batch.id) not in (await client.get("/batches", headers=ann)).text
        answer = await act(client, "ann", act="job", verb="cancel", id=str(other.id))
        assert answer.status_code == 404
        dry = await act(client, "ann", act="jobs", verb="cancel", ids=[str(own.id), str(other.id)], dry=True)
        assert dry.json() == {"count": 1}
        counted = await act(client, "ann", act="jobs", verb="cancel", filter={"task": "add"}, dry=True)
        assert counted.json()["count"] == 1
        assert (await act(client, "ann", act="jobs", verb="cancel", filter={"task": "add"})).status_code == 200
        assert (await app.jobs.get(own.id)).status is Status.CANCELLED
        assert (await app.jobs.get(other.id)).status is Status.SCHEDULED
        assert (await act(client, "ann", act="job", verb="move", id=str(own.id), queue="x")).status_code == 403
        assert (await act(client, "ann", act="job", verb="rerun", id=str(own.id), payload={})).status_code == 403
        assert (await act(client, "ann", act="queue.pause", name="default")).status_code == 403
        assert (await act(client, "ann", act="batch.cancel", id=str(batch.id))).status_code == 404


async def test_a_filter_by_another_customer_is_refused_and_not_replaced(app: App) -> None:
    async with mounted(app) as client:
        own = await app.tasks["add"].options(customer="ann", delay=3600).submit(111)
        ann = {"x-who": "ann"}
        for path in ("/jobs", "/jobs.json", "/jobs.csv", "/dead"):
            for headers in (ann, ann | {"x-headrace-live": "1"} if "." not in path else ann):
                answer = await client.get(f"{path}?customer=bob", headers=headers)
                assert (answer.status_code == 403) is ("x-headrace-live" not in headers), path
                assert str(own.id) not in answer.text, path
                assert "the customer &#39;ann&#39; alone" in answer.text, path
            assert (await client.get(f"{path}?customer=ann", headers=ann)).status_code == 200
        for more in ({}, {"dry": True}, {"verb": "discard", "filter": {"customer": "bob", "status": ["queued"]}}):
            asked = {"act": "jobs", "verb": "cancel", "filter": {"customer": "bob"}, **more}
            answer = await act(client, "ann", **asked)
            assert answer.status_code == 403
            assert "'ann' alone" in answer.json()["error"]
        assert (await app.jobs.get(own.id)).status is Status.SCHEDULED, "nobody asked for this one"
        assert (await client.get("/jobs?customer=bob", headers={"x-who": "act"})).status_code == 200


async def test_priorities_are_shown_by_the_name_of_their_band(app: App) -> None:
    async with mounted(app) as client:
        job = await app.tasks["add"].options(priority="high", delay=60).submit(1)
        page = (await client.get(f"/jobs/{job.id}")).text
        assert '<dt>Priority</dt><dd>80 <span class="soft">high</span></dd>' in page
        assert '<span class="tag">high</span>' in (await client.get("/jobs")).text
        assert "priority 50 (normal)" in (await client.get("/tasks/add")).text
        answer = await act(client, act="job", verb="reprioritise", id=str(job.id), priority="low")
        assert (answer.status_code, (await app.jobs.get(job.id)).priority) == (200, 15)


async def test_queues_are_shown_in_pages(app: App) -> None:
    async with mounted(app) as client:
        names = {f"q{number:03}" for number in range(150)}
        await app.submit_many([await app.draft("add", {"a": 1}, queue=name, delay=3600) for name in names])
        first = await client.get("/queues")
        shown = set(re.findall(r'data-key="(q\d+)"', first.text))
        [more] = re.findall(r'rel="next" href="([^"]+)"', first.text)
        second = await client.get(more.replace("&amp;", "&").removeprefix("/dashboard"))
        assert 80 < len(shown) <= 100
        assert shown | set(re.findall(r'data-key="(q\d+)"', second.text)) == names
        assert 'rel="next"' not in second.text
        assert (await client.get("/queues?cursor=x")).status_code == 400


async def test_whoever_is_bound_to_tasks_submits_only_these(app: App) -> None:
    async with mounted(app) as client:
        good = await act(client, "submitter", act="submit", task="add", payload={"a": 1})
        assert good.status_code == 200
        assert (
            await act(client, "submitter", act="submit", task="charge", payload={"who": 1, "cents": 2})
        ).status_code == 403
        ours = await act(client, act="submit", task="headrace.deliver", payload={})
        assert ours.status_code in (403, 422)
        wrong = await act(client, "submitter", act="submit", trial=True, task="add", payload={"a": "x"})
        assert (wrong.status_code, wrong.json()["field"]) == (200, "a")


async def test_whoever_is_bound_to_tasks_reruns_only_these(app: App) -> None:
    async with mounted(app) as client:
        own, other = [
            await app.tasks[name].options(delay=3600).submit(one) for name, one in (("add", 1), ("fragile", "x"))
        ]
        for job in (own, other):
            await app.jobs.handle(job.id).cancel()
        refused = await act(client, "bound", act="job", verb="rerun", id=str(other.id))
        assert (refused.status_code, "'fragile'" in refused.json()["error"]) == (403, True)
        trial = await act(client, "bound", trial=True, act="job", verb="rerun", id=str(other.id))
        assert trial.json().get("error") or trial.status_code == 403, trial.text
        payload = await act(client, "bound", act="job", verb="rerun", id=str(other.id), payload={"why": "y"})
        assert payload.status_code == 403
        matching = await act(client, "bound", act="jobs", verb="rerun", filter={"task": "fragile"})
        assert matching.status_code == 403
        assert await app.jobs.count() == 2
        many = await act(client, "bound", act="jobs", verb="rerun", ids=[str(own.id), str(other.id)])
        last = json.loads(many.text.splitlines()[-1])["told"]
        assert last.startswith("1 job rerun, 1 refused: You may not submit the task 'fragile'"), last
        assert (await act(client, "bound", act="job", verb="rerun", id=str(own.id))).status_code == 200
        assert [job.task for job in (await app.jobs.list(status="queued")).items] == ["add", "add"]


async def test_a_trial_says_what_would_be_refused_and_changes_nothing(app: App) -> None:
    async with mounted(app) as client:
        job = await app.tasks["add"].options(delay=3600).submit(1)

        async def tried(**body: Any) -> tuple[str | None, str | None]:
            answer = await act(client, trial=True, **body)
            assert answer.status_code == 200, answer.text
            return answer.json().get("field"), answer.json().get("error")

        assert await tried(act="queue.set", name="mail", max_concurrency=5) == (None, None)
        assert await tried(act="queue.set", name="mail", max_concurrency=0) == (
            "max_concurrency",
            "Expected `int` >= 1",
        )
        assert await tried(act="rate.set", name="new", limit=1, per=60) == (None, None)
        field, error = await tried(act="rate.set", name="new", per=60)
        assert (field, "missing required field `limit`" in (error or "")) == ("limit", True)
        assert await tried(act="schedule.set", name="s", task="add", kind="every", seconds=60, payload={"a": 1}) == (
            None,
            None,
        )
        assert await tried(act="schedule.set", task="add", kind="cron", expr="x") == (
            "expr",
            "not a cron expression: 'x' (Wrong number of fields)",
        )
        assert await tried(act="job", verb="rerun", id=str(job.id), payload={"a": "x"}) == (
            "payload",
            "add: a: Expected `int`, got `str`",
        )
        assert await tried(act="job", verb="cancel", id=str(job.id)) == (None, None)
        assert await tried(act="queue.pause", name="mail") == (None, None)
        assert (await app.jobs.get(job.id)).status is Status.SCHEDULED
        assert (await app.store.audit(), await app.schedules.list(), "new" in await app.rates.list()) == ([], [], False)


async def test_an_act_on_all_that_match_is_kept_to_those_that_were_counted(app: App) -> None:
    async with mounted(app) as client:
        add = app.tasks["add"].options(delay=3600, tags=["t"])
        await add.map([(1,), (2,)])
        counted = (await act(client, act="jobs", verb="cancel", filter={"tag": "t", "within": "1h"}, dry=True)).json()
        assert counted["count"] == 2
        late = await add.submit(3)
        lines = (await act(client, act="jobs", verb="cancel", filter=counted["filter"])).text.splitlines()
        assert json.loads(lines[-1])["told"] == "2 jobs cancelled."
        assert (await app.jobs.get(late.id)).status is Status.SCHEDULED
        none = await act(client, act="jobs", verb="retry", filter={"status": ["scheduled"]}, dry=True)
        assert none.json()["count"] == 0
        refused = await act(client, act="jobs", verb="cancel", filter={"status": ["no such status"]}, dry=True)
        assert (refused.status_code, "statuses are" in refused.json()["error"]) == (400, True)


async def test_an_app_that_is_not_open_says_what_to_do() -> None:
    app = App("memory://")
    web = dashboard(app, access=lambda request: "read")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=web), base_url="http://shop.example") as client:
        answer = await client.get("/")
        assert answer.status_code == 503
        assert "lifespan" in answer.text


async def test_a_job_shows_what_its_webhooks_were_told_and_lets_it_be_told_again(app: App) -> None:
    async with mounted(app) as client:
        await app.webhooks.add("https://example.com/hook")
        job = await app.tasks["add"].options(delay=3600).submit(1)
        await app.jobs.handle(job.id).cancel()
        told = (await app.webhooks.deliveries(job=job.id)).items
        assert told
        page = (await client.get(f"/jobs/{job.id}")).text
        assert "Webhook deliveries" in page
        assert "job.cancelled" in page
        assert str(told[0].id) in page
        first = next(one for one in told if one.status is Status.QUEUED)
        await app.jobs.handle(first.id).cancel()
        answer = await act(client, act="redeliver", id=str(first.id))
        assert answer.status_code == 200, answer.text
        assert (await app.jobs.get(first.id)).redrives == 1
        refused = await act(client, act="redeliver", id=str(job.id))
        assert refused.status_code == 409


async def test_an_open_page_is_told_what_changed_and_that_something_is_gone(app: App) -> None:
    async with mounted(app) as client:
        job = await app.tasks["add"].options(delay=3600).submit(1)
        await app.jobs.handle(job.id).cancel()
        live = {"x-headrace-live": "1"}
        first = await client.get(f"/jobs/{job.id}", headers=live)
        assert "<header" not in first.text, "without what does not change"
        again = live | {"if-none-match": first.headers["etag"]}
        assert (await client.get(f"/jobs/{job.id}", headers=again)).status_code == 304
        await app.jobs.handle(job.id).retry()
        assert (await client.get(f"/jobs/{job.id}", headers=again)).status_code == 200
        gone = await client.get(f"/jobs/{app.host.new_id()}", headers=live)
        assert (gone.status_code, "No such job" in gone.text, 'data-every="0"' in gone.text) == (200, True, True)


async def test_what_changed_of_a_page_is_made_once_for_all_who_may_do_the_same(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, page = list[str](), Renderer.page

    def noted(renderer: Renderer, ask: PageRequest, *rest: Any) -> bytes:
        made.append(ask.viewer.name)
        return page(renderer, ask, *rest)

    monkeypatch.setattr(Renderer, "page", noted)
    with app.override(clock=FakeClock()):
        async with mounted(app) as client:
            for viewer in ("act", "act", "read", "act", "ann", "read"):
                answer = await client.get("/batches", headers={"x-headrace-live": "1", "x-who": viewer})
                assert answer.status_code == 200
            assert made == ["dashboard:act", "dashboard:read", "ann"]
            assert (await act(client, act="queue.pause", name="default")).status_code == 200
            made.clear()
            await client.get("/batches", headers={"x-headrace-live": "1"})
            assert made == ["dashboard:act"], "somebody acted"


@pytest.mark.parametrize("number", [2, 3])
async def test_the_groups_of_failures_say_of_how_many_they_are(
    app: App, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_COUNTED_JOBS", 2)
    async with mounted(app) as client:
        await app.tasks["fragile"].map([("broken",)] * number)
        await app.worker(burst=True).run()
        page = await client.get("/dead")
        assert "<b>2</b> jobs" in page.text
        assert ("Counted are the 2 that failed last" in page.text) is (number == 3)


async def test_a_chosen_job_that_is_gone_does_not_keep_the_others_from_being_acted_on(app: App) -> None:
    async with mounted(app) as client:
        kept = [await app.tasks["add"].options(delay=3600).submit(number) for number in range(2)]
        ids = [str(kept[0].id), str(uuid4()), str(kept[1].id)]
        answer = await act(client, act="jobs", verb="cancel", ids=ids)
        said = json.loads(answer.text.splitlines()[-1])
        assert said["told"] == f"2 jobs cancelled, 1 refused: there is no job {ids[1]}."
        assert [(await one.refresh()).status for one in kept] == [Status.CANCELLED] * 2
        lacking = await act(client, act="jobs", verb="postpone", ids=ids[:1])
        assert "Say how long to wait." in lacking.text


async def test_who_submitted_a_job_from_a_form_is_on_its_page(app: App) -> None:
    async with mounted(app) as client:
        made = await act(client, "scopes:read,submit", act="submit", task="add", payload={"a": 1}, delay=3600)
        page = await client.get(made.json()["go"].removeprefix("/dashboard"))
        assert re.search(r"submitted_by</span>: <span class=.string.>&#34;some&#34;<", page.text)


async def test_a_submit_that_cannot_be_audited_is_a_submit_all_the_same(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise Unavailable("the store is away")

    async with mounted(app) as client:
        monkeypatch.setattr("headrace.dashboard.actions.jobs.note_submit", away)
        made = await act(client, act="submit", task="add", payload={"a": 1}, delay=3600)
        assert (made.status_code, made.json()["told"]) == (200, "The job is submitted.")
        [job] = (await app.jobs.list()).items
        assert job.metadata == {"submitted_by": "dashboard:act"}


async def test_a_page_that_breaks_carries_the_headers_too_and_tells_nothing(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    async with mounted(app) as client:
        monkeypatch.setattr(app.batches, "list", broken)
        page = await client.get("/batches")
        assert (page.status_code, page.headers["content-security-policy"]) == (500, POLICY)
        assert "Something is broken" in page.text
        assert "a secret" not in page.text
