"""Views of Django that are jobs, asked over HTTP: of a server with threads (WSGI), and of one with a loop (ASGI)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest

from tests.contrib.django.sites import PROJECT, Site
from tests.endpoints.processes import answering, started
from tests.support.servers.daemons import free_port

pytestmark = pytest.mark.timeout(240)

WAIT = {"Prefer": "wait=30"}


@pytest.fixture(params=["wsgi", "asgi"])
def web(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[httpx2.Client]:
    """The project on a server, and its worker, each a process of its own."""
    site, port = Site(tmp_path), free_port()
    manage = [sys.executable, str(PROJECT / "manage.py")]
    server = {
        "wsgi": [*manage, "runserver", "--noreload", str(port)],
        "asgi": [sys.executable, "-m", "uvicorn", "shop.asgi:application", "--port", str(port), "--lifespan", "off"],
    }[request.param]
    with ExitStack() as stack:
        process = stack.enter_context(started(server, tmp_path, site.environment))
        address = f"http://127.0.0.1:{port}"
        answering(process, f"{address}/own/x")
        stack.enter_context(started([*manage, "headrace", "worker"], tmp_path, site.environment))
        yield stack.enter_context(httpx2.Client(base_url=address, trust_env=False, timeout=60))


def test_a_view_becomes_a_job(web: httpx2.Client) -> None:
    ann = {"X-Caller": "ann", "Idempotency-Key": "1"}
    accepted = web.post("/orders/north?dry=true", json={"item": "tea"}, headers=ann)
    assert accepted.status_code == 202
    place = accepted.headers["location"]
    assert place == f"/own/{accepted.json()['id']}"
    assert web.post("/orders/north?dry=true", json={"item": "tea"}, headers=ann).headers["location"] == place
    assert web.post("/orders/north?dry=true", json={"item": "jam"}, headers=ann).status_code == 422

    events = list[str]()
    with web.stream("GET", f"{place}/events", headers=ann) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events += answer.iter_lines()
    told = [line for line in events if line.startswith("event: ")]
    assert (told[0], told[-1]) == ("event: snapshot", "event: status")
    result = web.get(f"{place}/result?wait=30", headers=ann)
    assert (result.status_code, result.json()) == (200, ["north", "tea", 1, True])
    shown = web.get(place, headers=ann)
    assert [shown.json()["status"], web.get(f"{place}?words=jobmaster", headers=ann).json()["status"]] == [
        "completed",
        "Succeeded",
    ]
    same = web.get(place, headers=ann | {"If-None-Match": shown.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    assert web.delete(place, headers=ann).status_code == 409
    assert web.get(place, headers={"X-Caller": "bob"}).status_code == 404
    assert web.post(place, headers=ann).status_code == 405

    bob = {"X-Caller": "bob"}
    waited = web.post("/orders/south", content=b"item=jam&count=2", headers=bob | WAIT | FORM)
    assert (waited.status_code, waited.json()) == (200, ["south", "jam", 2, False])
    assert web.post("/orders/south?poor=1", json={"item": "x"}, headers=bob).status_code == 402
    wrong = web.post("/orders/south", json={}, headers=bob)
    assert (wrong.status_code, wrong.headers["content-type"]) == (422, "application/problem+json")
    assert web.post("/orders/south", content=b" " * 3_000_000, headers=bob).status_code == 413
    assert web.get("/orders/south").status_code == 405
    assert web.get("/divide/4", headers=WAIT).json() == 0.25
    assert json.loads(web.put("/divide/8", headers=WAIT).content) == 0.125


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


COUNT = """
from headrace.contrib.django import project_app
print(project_app().wait(project_app().jobs.count()))
"""


def test_200_requests_at_once_with_one_key_are_one_job(web: httpx2.Client, tmp_path: Path) -> None:
    headers = {"X-Caller": "ann", "Idempotency-Key": "once"}

    def ask(number: int) -> httpx2.Response:
        while True:  # ten may wait at the door of runserver: who is sent away asks again, as the key allows
            with suppress(httpx2.NetworkError):
                return web.post("/orders/north", json={"item": "tea"}, headers=headers)

    with ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(ask, range(200)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert Site(tmp_path).script(COUNT) == 1


PRUNE = """
from datetime import UTC, datetime, timedelta
from headrace.contrib.django import project_app
from headrace.testing import FakeClock
from shop.urls import order
app, clock = project_app(), FakeClock(datetime.now(UTC) - timedelta(days=400))
with app.override(clock=clock):
    handle = order.task.options(customer="ann", delay=1e6).submit_sync(shop="north", order={"item": "tea"})
    app.wait(app.jobs.handle(handle.id).cancel())
    clock.advance(days=40)
    app.wait(app.store.prune())
    assert app.wait(app.jobs.get_many([handle.id])) == [None]
print(json.dumps(str(handle.id)))
"""


def test_a_job_that_was_pruned_is_gone(web: httpx2.Client, tmp_path: Path) -> None:
    id = Site(tmp_path).script(PRUNE)
    for part in ("", "/result"):
        gone = web.get(f"/own/{id}{part}", headers={"X-Caller": "ann"})
        assert (gone.status_code, gone.json()["code"]) == (410, "gone")


# -- several status pages

PAIRS = {"SHOP_URLS": "shop.pairs"}

GREET = """
from django.test import Client
from headrace.contrib.django import project_app
web, app = Client(), project_app()
place = web.post("/greet/ann").headers["location"]
shown = web.get(place).json()
queued = web.delete(place).json()
place_of_ended = web.post("/greet/bob").headers["location"]
app.wait(app.jobs.handle(web.get(place_of_ended).json()["id"]).resolve(result="hello"))
ended = web.delete(place_of_ended).json()
elsewhere = web.post("/elsewhere/ann").headers["location"]
print(json.dumps([place, shown["links"]["self"], queued["status"], ended["reason"], elsewhere]))
"""


def test_a_view_names_its_pages_and_delete_discards_a_job_that_has_ended(tmp_path: Path) -> None:
    site = Site(tmp_path, PAIRS)
    place, shown, queued, ended, elsewhere = site.script(GREET)
    assert place.startswith("/open/")
    assert "?token=" in place
    assert (shown, queued, ended) == (place, "cancelled", "discarded")
    assert elsewhere.startswith("https://x.example/")
    assert "?token=" in elsewhere
    site.manage("check")


FIRST = """
from django.test import Client
from headrace.errors import ConfigError
said = []
for _ in range(2):
    try:
        Client().get("/health")
    except ConfigError as error:
        said.append(str(error))
print(json.dumps(said))
"""


@pytest.mark.parametrize(
    ("pair", "cause"),
    [
        ("unnamed", "2 status_urls show its jobs: name one with status="),
        ("unknown", "status names 'nowhere'"),
        ("absent", "does not include the pages that status names"),
        ("callers", "does not know its callers"),
    ],
)
def test_a_wrong_pair_of_view_and_pages_does_not_start(tmp_path: Path, pair: str, cause: str) -> None:
    site = Site(tmp_path, {**PAIRS, "SHOP_PAIR": pair})
    checked = site.manage("check", code=1)
    assert cause in checked
    assert "shop.pairs.greet: (headrace.E001)" in checked
    said = site.script(FIRST)
    assert len(said) == 2, "every request is refused, also one for another view"
    assert all(cause in text for text in said)
