"""Routes of Flask that are jobs, asked over HTTP of a server with threads."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4

import httpx2
import msgspec
import pytest
from flask import Blueprint, Flask, abort, g, request
from werkzeug.serving import make_server

from headrace import App, Context, JobOptions, Retry
from headrace.client.draft import Draft
from headrace.endpoints.arguments import FromHeader
from headrace.endpoints.dependencies import InWorker
from headrace.endpoints.flask import BlueprintOptions, JobBlueprint, status_blueprint
from headrace.endpoints.responses import Answers
from headrace.errors import ConfigError
from headrace.testing import FakeClock
from tests.endpoints.serving import Served, read_events
from tests.support.apps import url_of

pytestmark = pytest.mark.timeout(120)

WAIT = {"Prefer": "wait=30"}


class Order(msgspec.Struct):
    item: str
    count: int = 1


def caller() -> str | None:
    return request.headers.get("x-caller")


@pytest.fixture
def jobs(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", defaults={"retry": Retry(0)})


@contextmanager
def server_of(web: Flask) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, web, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@asynccontextmanager
async def serving(jobs: App, *blueprints: Blueprint, worker: bool = True, **pages: Any) -> AsyncIterator[Served]:
    web = Flask(__name__)
    for one in blueprints:
        web.register_blueprint(one)
    web.register_blueprint(status_blueprint(jobs, **(pages or {"public": True})), url_prefix="/jobs")
    with server_of(web) as address:
        async with httpx2.AsyncClient(base_url=address, timeout=60, trust_env=False) as client, jobs:
            if not worker:
                yield Served(client, address)
                return
            async with jobs.worker():
                yield Served(client, address)


async def test_a_request_becomes_a_job_with_typed_arguments(jobs: App) -> None:
    orders, seen = JobBlueprint(jobs, "orders", __name__, url_prefix="/orders"), list[Any]()

    @orders.post("/<shop>/<int:number>", job=JobOptions(timeout=60))
    def order(
        ctx: Context,
        shop: str,
        number: int,
        order: Order,
        tag: list[str],
        user: Annotated[str, FromHeader("x-user")],
        dry: bool = False,
    ) -> Order:
        seen.append((ctx.job.query, ctx.job.route, shop, number, order, tag, user, dry))
        return order

    @orders.get("/plain", job=None)
    def plain() -> str:
        return "plain"

    async with serving(jobs, orders) as web:
        path, headers = "/orders/north/7?tag=a&dry=true&tag=b", {"X-User": "ann"}
        answer = await web.client.post(path, json={"item": "tea", "count": 2}, headers=headers | WAIT)
        assert (answer.status_code, answer.json()) == (200, {"item": "tea", "count": 2})
        assert answer.headers["preference-applied"] == "wait=30"
        query = (("tag", "a"), ("dry", "true"), ("tag", "b"))
        assert seen == [(query, {"shop": "north", "number": 7}, "north", 7, Order("tea", 2), ["a", "b"], "ann", True)]
        form = await web.client.post(path, data={"item": "jam"}, headers=headers | WAIT)
        assert form.json() == {"item": "jam", "count": 1}
        assert (await web.client.get("/orders/plain")).text == "plain"
        assert (await web.client.get("/orders/north/7")).status_code == 405
        assert (await order.run("south", 1, Order("x"), [], "bob")) == Order("x")

        bad = await web.client.post("/orders/north/7", content=b'{"item": 1}')
        assert (bad.status_code, bad.headers["content-type"]) == (422, "application/problem+json")
        assert [one["field"] for one in bad.json()["errors"]] == ["body.order.item", "query.tag", "header.x-user"]
        large = await web.client.post(path, content=b" " * 3_000_000, headers=headers)
        assert (large.status_code, large.json()["code"]) == (413, "too-large")


async def test_an_answer_says_where_the_job_is_shown(jobs: App) -> None:
    slow, goes = JobBlueprint(jobs, "slow", __name__), asyncio.Event()

    @slow.post("/slow/<name>")
    async def wait(ctx: Context, name: str) -> str:
        ctx.progress(50, "half")
        await goes.wait()
        return name

    async with serving(jobs, slow) as web:
        accepted = await web.client.post("/slow/tea")
        assert accepted.status_code == 202
        assert int(accepted.headers["retry-after"]) >= 1
        place = accepted.headers["location"]
        assert place.startswith(f"/jobs/{accepted.json()['id']}?token=")
        assert (await web.client.get(place.partition("?")[0])).status_code == 403

        shown = await web.client.get(place)
        while shown.json()["status"] != "running" or not shown.json()["progress"]:
            shown = await web.client.get(f"{place}&wait=5", headers={"If-None-Match": shown.headers["etag"]})
            while shown.status_code == 304:
                shown = await web.client.get(f"{place}&wait=5")
        result = place.replace("?", "/result?")
        assert (await web.client.get(result)).status_code == 202
        goes.set()
        assert (await web.client.get(f"{result}&wait=30")).json() == "tea"
        ended = await web.client.get(place)
        again = await web.client.get(place, headers={"If-None-Match": ended.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await web.client.delete(place)).status_code == 409
        assert (await web.client.get(f"{place}&wait=ever")).status_code == 400


async def test_events_come_while_the_job_runs(jobs: App) -> None:
    slow, goes = JobBlueprint(jobs, "slow", __name__), asyncio.Event()

    @slow.post("/slow")
    async def wait() -> int:
        await goes.wait()
        return 7

    async with serving(jobs, slow) as web:
        events = (await web.client.post("/slow")).headers["location"].replace("?", "/events?")
        async with web.client.stream("GET", events) as answer:  # read in part, then hung up
            async for line in answer.aiter_lines():
                if line == "event: snapshot":
                    break
        reading = asyncio.create_task(read_events(web.client, events))
        goes.set()
        read = await reading
        assert read[0].name == "snapshot"
        assert (read[-1].name, read[-1].data["status"], read[-1].data["result"]) == ("status", "completed", 7)
        assert (await web.client.get(events, headers={"Last-Event-ID": read[-1].id})).status_code == 204


async def test_keys_belong_to_callers_and_jobs_are_seen_by_their_own(jobs: App) -> None:
    orders = JobBlueprint(jobs, "orders", __name__, identity=caller)

    @orders.post("/orders")
    async def order(order: Order) -> str:
        return order.item

    async with serving(jobs, orders, worker=False, identity=caller) as web:
        ann, bob = {"X-Caller": "ann", "Idempotency-Key": "1"}, {"X-Caller": "bob", "Idempotency-Key": "1"}
        many = await asyncio.gather(*(web.client.post("/orders", json={"item": "tea"}, headers=ann) for _ in range(20)))
        assert {one.status_code for one in many} == {202}
        [place] = {one.headers["location"] for one in many}
        assert await jobs.jobs.count(status="queued") == 1
        assert (await web.client.post("/orders", json={"item": "jam"}, headers=ann)).status_code == 422
        other = await web.client.post("/orders", json={"item": "jam"}, headers=bob)
        assert other.headers["location"] != place
        assert (
            await web.client.post("/orders", json={"item": "x"}, headers={"Idempotency-Key": "1"})
        ).status_code == 400

        assert (await web.client.get(place, headers=bob)).status_code == 404
        assert (await web.client.get(place)).status_code == 404
        assert (await web.client.get(place, headers=ann)).status_code == 200
        assert (await web.client.delete(place, headers=ann)).json()["status"] == "cancelled"
        assert (await jobs.jobs.get(UUID(place.rpartition("/")[2]))).customer == "ann"


async def test_pages_are_open_to_whom_the_service_lets_pass(jobs: App) -> None:
    def may_see() -> bool:
        if "x-caller" not in request.headers:
            abort(401)
        return caller() == "ann"

    failing = JobBlueprint(jobs, "failing", __name__)

    @failing.post("/fails")
    def fails() -> None:
        try:
            raise KeyError("7")
        except KeyError:
            abort(404, "no such customer")

    async with serving(jobs, failing, may_see=may_see, acts=True) as web:
        failed = await web.client.post("/fails", headers=WAIT)
        assert (failed.status_code, failed.json()["code"]) == (404, "NotFound")
        place = failed.headers["content-location"]
        assert (await web.client.get(place)).status_code == 401
        assert (await web.client.get(place, headers={"X-Caller": "bob"})).json()["code"] == "forbidden"
        ann = {"X-Caller": "ann"}
        assert (await web.client.get(f"{place}/result", headers=ann)).json()["causes"][0]["code"] == "KeyError"
        assert (await web.client.post(f"{place}/discard", headers=ann)).json()["status"] == "cancelled"
        assert (await web.client.get(f"/jobs/{uuid4()}", headers=ann)).status_code == 404
        assert (await web.client.get("/jobs/nonsense", headers=ann)).status_code == 404


async def test_a_hook_answers_in_the_context_of_the_request(jobs: App) -> None:
    def admit(asked: Any, draft: Draft[Any]) -> Any:
        assert asked.path == request.path
        return (f"{g.user} has no credit", 402) if draft.payload_text == '{"n":1}' else None

    class MyAnswers(Answers):
        def document(self, job: Any, address: str | None) -> Any:
            return {"ticket": str(job.id)}

    def number() -> Iterator[int]:
        yield 40

    paid = JobBlueprint(jobs, "paid", __name__, before_submit=admit, answers=MyAnswers(), status_url="/at/{id}")

    @paid.before_request
    def user() -> None:
        g.user = "ann"

    @paid.post("/paid/<int:n>")
    def pay(n: int, more: Annotated[int, InWorker(number)]) -> int:
        return n + more

    async with serving(jobs, paid) as web:
        refused = await web.client.post("/paid/1")
        assert (refused.status_code, refused.text) == (402, "ann has no credit")
        accepted = await web.client.post("/paid/2")
        assert accepted.headers["location"].partition("?token=")[0] == f"/at/{accepted.json()['ticket']}"
        assert (await web.client.post("/paid/2", headers=WAIT)).json() == 42


async def test_a_prefix_may_have_parameters_and_a_get_job_is_not_started_by_head(jobs: App) -> None:
    tenants = Blueprint("tenants", __name__, url_prefix="/<tenant>")
    inner = JobBlueprint(jobs, "inner", __name__, url_prefix="/work")

    @inner.get("/<int:n>")
    async def work(tenant: str, n: int) -> str:
        return f"{tenant} {n}"

    tenants.register_blueprint(inner)
    tenants.register_blueprint(status_blueprint(jobs, "own", public=True), url_prefix="/jobs")
    web = Flask(__name__)
    web.register_blueprint(tenants)
    with server_of(web) as address, httpx2.Client(base_url=address, trust_env=False, timeout=60) as client:
        accepted = await asyncio.to_thread(client.get, "/acme/work/3")
        assert accepted.headers["location"].startswith("/acme/jobs/")
        shown = await asyncio.to_thread(client.get, accepted.headers["location"])
        assert shown.json()["status"] == "queued"
        assert (await asyncio.to_thread(client.head, "/acme/work/3")).status_code == 405
    async with jobs:
        assert await jobs.jobs.count(status="queued") == 1


def test_what_cannot_be_used_is_refused_at_once(jobs: App) -> None:
    with pytest.raises(ConfigError, match="status_blueprint: job ids are no secrets"):
        status_blueprint(jobs)
    with pytest.raises(ConfigError, match="say public=True"):
        status_blueprint(jobs, identity=caller, secret="0123456789abcdef")
    lost = JobBlueprint(jobs, "lost", __name__)

    @lost.post("/<place>")
    def nothing() -> None: ...

    with pytest.raises(ConfigError, match="no parameter for 'place'"):
        Flask(__name__).register_blueprint(lost)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_200_requests_at_once_with_one_key_are_one_job(engine: str, tmp_path: Path) -> None:
    jobs = App(url_of(engine, tmp_path))
    orders = JobBlueprint(jobs, "orders", __name__, identity=caller)

    @orders.post("/orders")
    def order(order: Order) -> Order:
        return order

    async with serving(jobs, orders, worker=False) as web:
        headers = {"Idempotency-Key": "once", "X-Caller": "ann"}
        asked = [web.client.post("/orders", json={"item": "tea"}, headers=headers) for _ in range(200)]
        answers = await asyncio.gather(*asked)
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert await jobs.jobs.count() == 1


async def test_a_job_that_was_pruned_is_gone(tmp_path: Path) -> None:
    clock = FakeClock(datetime.now(UTC) - timedelta(days=400))
    jobs = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", clock=clock)
    quick = JobBlueprint(jobs, "quick", __name__)

    @quick.post("/")
    def one() -> int:
        return 1

    async with serving(jobs, quick) as web:
        place = (await web.client.post("/", headers=WAIT)).headers["content-location"]
        result = place.replace("?", "/result?")
        assert (await web.client.get(result)).json() == 1
        clock.advance(days=40)
        assert await jobs.store.prune() == 1
        gone = await web.client.get(result)
        assert (gone.status_code, gone.json()["code"]) == (410, "gone")


async def test_statuses_are_in_the_words_of_the_service_and_of_the_request(jobs: App) -> None:
    sums = JobBlueprint(jobs, "sums", __name__, words="osqueue")

    @sums.post("/add")
    def add(a: int) -> int:
        return a

    async with serving(jobs, sums, worker=False, public=True, words="osqueue") as web:
        made = await web.client.post("/add?a=1")
        assert made.json()["status"] == "unclaimed"
        place = made.headers["location"]
        assert (await web.client.get(place)).json()["status"] == "unclaimed"
        assert (await web.client.get(f"{place}&words=emprops")).json()["status"] == "queued"
        refused = await web.client.get(f"{place}&words=klingon")
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "words")
        assert (await web.client.delete(f"{place}&words=asyncendpoints")).json()["status"] == "Canceled"


async def test_each_blueprint_names_its_own_pages(jobs: App) -> None:
    shown = status_blueprint(jobs, "open", public=True, delete="discard", url_prefix="/open")
    named = JobBlueprint(jobs, "named", __name__, status=shown)
    elsewhere = JobBlueprint(jobs, "elsewhere", __name__, status=shown, status_url="https://x.example/{id}")
    for one in (named, elsewhere):
        one.post(f"/{one.name}", job={"name": one.name})(lambda: None)
    async with serving(jobs, shown, named, elsewhere, public=True) as web:
        answer = await web.client.post("/named", headers=WAIT)
        assert answer.headers["content-location"].startswith("/open/")
        assert (await web.client.delete(answer.headers["content-location"])).json()["reason"] == "discarded"
        place = (await web.client.post("/elsewhere")).headers["location"]
        assert place.startswith("https://x.example/")
        assert "?token=" in place


def test_a_wrong_pair_of_blueprint_and_pages_cannot_be_registered(jobs: App) -> None:
    shown = status_blueprint(jobs, "open", public=True)
    own = status_blueprint(jobs, "own", identity=caller)
    named, unnamed = JobBlueprint(jobs, "named", __name__, status=shown), JobBlueprint(jobs, "unnamed", __name__)
    with pytest.raises(ConfigError, match="another App"):
        JobBlueprint(App("memory://"), "other", __name__, status=shown)
    with pytest.raises(ConfigError, match="status must be what shows jobs"):
        JobBlueprint(jobs, "other", __name__, status=named)
    with pytest.raises(ConfigError, match="does not know its callers"):
        JobBlueprint(jobs, "other", __name__, status=own)
    for blueprints, cause in (
        (
            (unnamed, shown, status_blueprint(jobs, "more", public=True)),
            r"at 2 places.*JobBlueprint\(jobs, status=...\)",
        ),
        ((shown, status_blueprint(jobs, "more", public=True), unnamed), "at 2 places"),
        ((unnamed, own), "nobody would see its jobs"),
        ((own, unnamed), "nobody would see its jobs"),
    ):
        *first, last = blueprints
        web = Flask(__name__)
        for number, one in enumerate(first):
            web.register_blueprint(one, url_prefix=f"/{number}")
        with pytest.raises(ConfigError, match=cause):
            web.register_blueprint(last, url_prefix="/last")


def test_pages_that_are_missing_are_an_error_at_the_first_request_of_any_kind(jobs: App) -> None:
    shown = status_blueprint(jobs, "open", public=True)
    web = Flask(__name__)
    web.testing = True
    web.add_url_rule("/health", view_func=lambda: "ok", endpoint="health")
    web.register_blueprint(JobBlueprint(jobs, "named", __name__, status=shown))
    for _ in range(2):
        with pytest.raises(ConfigError, match="does not include the pages that status names"):
            web.test_client().get("/health")


def test_a_blueprint_takes_the_arguments_of_flasks_own() -> None:
    given = set(inspect.signature(Blueprint.__init__).parameters) - {"self", "name", "import_name"}
    assert given == BlueprintOptions.__annotations__.keys()
