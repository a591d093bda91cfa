"""Routes of Starlette that are jobs, asked over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Mount
from starlette.testclient import TestClient

from headrace import App, Context, JobOptions, Retry
from headrace.endpoints.arguments import FromHeader
from headrace.endpoints.dependencies import InWorker
from headrace.endpoints.starlette import JobRoutes, status_routes
from headrace.errors import ConfigError
from tests.endpoints.serving import read_events, serving

pytestmark = pytest.mark.timeout(120)

WAIT = {"Prefer": "wait=60"}


class Order(msgspec.Struct):
    item: str
    count: int = 1


@dataclass
class Line:
    text: str
    at: date


class Model(BaseModel):
    n: int


def caller(request: Request) -> str | None:
    return request.headers.get("x-caller")


async def later(request: Request) -> str | None:
    await asyncio.sleep(0)
    return caller(request)


@pytest.fixture
def jobs(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", defaults={"retry": Retry(0)})


def web_of(jobs: App, routes: JobRoutes, worker: bool = True, **pages: Any) -> Starlette:
    shown: list[BaseRoute] = [Mount("/jobs", routes=status_routes(jobs, **(pages or {"public": True})))]
    return Starlette(routes=[*routes, *shown], lifespan=jobs.lifespan(worker=worker))


async def test_arguments_are_taken_from_the_request_by_their_types(jobs: App) -> None:
    routes, seen = JobRoutes(jobs), list[Any]()

    @routes.post("/orders/{shop}/{number:int}", job=JobOptions(timeout=60))
    async def order(
        ctx: Context,
        shop: str,
        number: int,
        order: Order,
        tag: list[str],
        user: Annotated[str, FromHeader("x-user")],
        day: date | None = None,
        dry: bool = False,
    ) -> Order:
        seen.append((ctx.job.route, shop, number, order, tag, user, day, dry))
        return order

    @routes.put("/lines")
    def line(line: Line) -> str:
        return f"{line.text} {line.at.year}"

    @routes.patch("/models")
    async def model(model: Model) -> Model:
        return model

    @routes.delete("/free/{id:uuid}")
    async def free(id: UUID, body: dict[str, int] | None = None) -> str:
        return f"{id} {body}"

    async with serving(web_of(jobs, routes)) as web:
        answer = await web.client.post(
            "/orders/tea/7?tag=a&tag=b&day=2026-01-31&dry=true",
            json={"item": "green"},
            headers={**WAIT, "X-User": "ann"},
        )
        assert (answer.status_code, answer.json()) == (200, {"item": "green", "count": 1}), answer.text
        route = {"shop": "tea", "number": 7}
        assert seen == [(route, "tea", 7, Order("green"), ["a", "b"], "ann", date(2026, 1, 31), True)]
        answer = await web.client.put("/lines", data={"text": "x", "at": "2026-01-31"}, headers=WAIT)
        assert answer.json() == "x 2026", "a form"
        assert (await web.client.patch("/models", json={"n": 1}, headers=WAIT)).json() == {"n": 1}
        id = UUID(int=1)
        assert (await web.client.delete(f"/free/{id}", headers=WAIT)).json() == f"{id} None"


async def test_what_does_not_fit_is_a_422_that_names_everything(jobs: App) -> None:
    routes = JobRoutes(jobs)

    @routes.post("/orders/{number}")
    async def order(number: int, order: Order, size: float, at: Annotated[date, FromHeader()]) -> None: ...

    async with serving(web_of(jobs, routes, worker=False)) as web:
        answer = await web.client.post("/orders/x?size=y", json={"item": 3}, headers={"At": "soon"})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-payload")
        assert [one["field"] for one in answer.json()["errors"]] == [
            "path.number",
            "body.order.item",
            "query.size",
            "header.at",
        ]
        for content, kind in (
            (b"{", "application/json"),
            (b"\xff", "application/json"),
            (b"x", "text/plain"),
            (b"", ""),
        ):
            answer = await web.client.post(
                "/orders/1?size=1", content=content, headers={"content-type": kind, "At": "2026-01-31"}
            )
            assert [one["field"].rpartition(".")[0] for one in answer.json()["errors"]] == ["body"], answer.text
        answer = await web.client.post("/orders/1", content=b" " * 3_000_000)
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
        assert await jobs.jobs.count() == 0


async def test_keys_identities_and_pages(jobs: App) -> None:
    routes = JobRoutes(jobs, identity=later)

    @routes.post("/work/{n}")
    async def work(n: int, seen: Annotated[str, FromHeader("x-seen")] = "") -> int:
        return n

    ann, bob = {"X-Caller": "ann", "Idempotency-Key": "k"}, {"X-Caller": "bob"}
    async with serving(web_of(jobs, routes, worker=False, identity=caller, acts=True)) as web:
        answers = await asyncio.gather(*(web.client.post("/work/1", headers=ann) for _ in range(20)))
        [id] = {answer.json()["id"] for answer in answers}
        assert (await web.client.post("/work/1", headers={**ann, "X-Seen": "yes"})).json()["id"] == id
        assert (await web.client.post("/work/1?q=1", headers=ann)).status_code == 422
        assert (await web.client.post("/work/2", headers=ann)).status_code == 422
        assert (await web.client.post("/work/2", headers={"Idempotency-Key": "k"})).status_code == 400
        place = answers[0].headers["location"]
        assert place == f"/jobs/{id}"
        shown = await web.client.get(place, headers=ann)
        assert (shown.status_code, shown.json()["status"]) == (200, "queued")
        assert (await web.client.get(place, headers={**ann, "If-None-Match": shown.headers["etag"]})).status_code == 304
        assert (await web.client.get(f"{place}/result", headers=ann)).status_code == 202
        assert (await web.client.get(place, headers=bob)).status_code == 404
        assert (await web.client.get(f"{place}?wait=soon", headers=ann)).status_code == 400
        assert (await web.client.delete(place, headers=ann)).json()["status"] == "cancelled"
        assert (await web.client.delete(place, headers=ann)).status_code == 409
        assert (await web.client.post(f"{place}/retry", headers=ann)).json()["status"] == "queued"
        assert (await web.client.post(f"{place}/discard", headers=ann)).status_code == 409


async def test_public_pages_and_events(jobs: App) -> None:
    routes = JobRoutes(jobs)

    @routes.get("/count")
    async def count(n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number

    @routes.get("/wrong")
    async def wrong() -> None:
        raise HTTPException(404, "no such thing")

    async with serving(web_of(jobs, routes)) as web:
        place = (await web.client.get("/count?n=2")).headers["location"]
        base, _, token = place.partition("?")
        events = await read_events(web.client, f"{base}/events?{token}")
        assert [one.data["value"] for one in events if one.name == "item"] == [0, 1]
        assert (events[-1].data["status"], events[-1].data["result"]) == ("completed", 2)
        assert (await web.client.get(base)).status_code == 403
        assert (await web.client.head("/count?n=2")).status_code == 405, "it would store a job"
        assert (await web.client.head(f"{base}/events?{token}")).status_code == 200
        assert await jobs.jobs.count() == 1
        answer = await web.client.get("/wrong", headers=WAIT)
        assert (answer.status_code, answer.json()["detail"]) == (404, "no such thing")


async def test_who_may_look_can_be_a_function(jobs: App) -> None:
    def may_see(request: Request) -> bool:
        if "x-stranger" in request.headers:
            raise HTTPException(401)
        return "x-caller" in request.headers

    routes = JobRoutes(jobs)

    @routes.post("/work")
    async def work() -> None: ...

    async with serving(web_of(jobs, routes, worker=False, may_see=may_see)) as web:
        place = (await web.client.post("/work")).headers["location"]
        assert (await web.client.get(place)).status_code == 403
        assert (await web.client.get(place, headers={"X-Caller": "ann"})).status_code == 200
        assert (await web.client.get(place, headers={"X-Stranger": "yes"})).status_code == 401


async def test_dependencies_are_made_in_the_worker(jobs: App) -> None:
    async def session() -> AsyncIterator[list[str]]:
        yield ["open"]

    routes = JobRoutes(jobs)

    @routes.post("/work/{n}")
    async def work(n: int, db: Annotated[list[str], InWorker(session)]) -> str:
        return f"{n} {db[0]}"

    async with serving(web_of(jobs, routes)) as web:
        assert (await web.client.post("/work/1", headers=WAIT)).json() == "1 open"


def test_pages_that_are_open_to_everybody_are_refused(jobs: App) -> None:
    with pytest.raises(ConfigError, match="job ids are no secrets"):
        status_routes(jobs)
    with pytest.raises(ConfigError, match="public=True"):
        status_routes(jobs, identity=caller, secret="x" * 32)


def test_handlers_that_cannot_be_read_are_refused(jobs: App) -> None:
    routes = JobRoutes(jobs)

    async def two(a: Order, b: Line) -> None: ...
    async def no_parameter() -> None: ...
    async def credential(authorization: Annotated[str, FromHeader()]) -> None: ...

    for fn, why in ((two, "one body"), (no_parameter, "stands in its path"), (credential, "may be a credential")):
        with pytest.raises(ConfigError, match=why):
            routes.post("/{id}" if fn is no_parameter else "/")(fn)


async def test_statuses_are_in_the_words_of_the_service_and_of_the_request(jobs: App) -> None:
    routes = JobRoutes(jobs, words="surefire")

    @routes.post("/add")
    async def add(a: int) -> int:
        return a

    async with serving(web_of(jobs, routes, worker=False, public=True, words="surefire")) as web:
        made = await web.client.post("/add?a=1")
        assert made.json()["status"] == "Pending"
        place = made.headers["location"]
        assert (await web.client.get(place)).json()["status"] == "Pending"
        assert (await web.client.get(f"{place}&words=jobmaster")).json()["status"] == "AssignedToBucket"
        refused = await web.client.get(f"{place}&words=klingon")
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "words")
        assert (await web.client.delete(f"{place}&words=headrace")).json()["status"] == "cancelled"


async def test_each_list_of_routes_names_its_own_pages(jobs: App) -> None:
    shown, others = status_routes(jobs, public=True), status_routes(jobs, public=True)
    named = JobRoutes(jobs, status=shown)
    named.post("/named", job={"name": "named"})(nothing)
    mounts = [Mount("/others", routes=others), Mount("/open", routes=shown)]
    async with serving(Starlette(routes=[*named, *mounts], lifespan=jobs.lifespan())) as web:
        answer = await web.client.post("/named")
        assert answer.headers["location"].startswith("/open/")
        assert (await web.client.get(answer.headers["location"])).json()["links"]["self"] == answer.headers["location"]


async def test_a_wrong_pair_of_routes_and_pages_does_not_start(jobs: App) -> None:
    shown, others = status_routes(jobs, public=True), status_routes(jobs, public=True)
    own = status_routes(jobs, identity=caller)
    with pytest.raises(ConfigError, match="another App"):
        JobRoutes(App("memory://"), status=shown)
    with pytest.raises(ConfigError, match="does not know its callers"):
        JobRoutes(jobs, status=own)
    named, unnamed = JobRoutes(jobs, status=shown), JobRoutes(jobs)
    named.post("/named", job={"name": "named"})(nothing)
    unnamed.post("/unnamed", job={"name": "unnamed"})(nothing)
    two: list[BaseRoute] = [*unnamed, Mount("/others", routes=others), Mount("/open", routes=shown)]
    for routes, cause in (
        (two, r"at 2 places.*JobRoutes\(jobs, status=...\)"),
        ([*named], "does not include the pages that status names"),
        ([Mount("/in", routes=[*unnamed]), Mount("/own", routes=own)], "nobody would see its jobs"),
        ([Mount("/in", app=Starlette(routes=two))], "at 2 places"),
    ):
        with pytest.raises(ConfigError, match=cause), TestClient(Starlette(routes=routes, lifespan=jobs.lifespan())):
            pass
    async with serving(Starlette(routes=two, lifespan=another_lifespan(jobs))) as web:
        assert (await web.client.post("/unnamed")).status_code == 500, "it is not clear which pages are meant"


def test_applications_of_one_app_have_pages_of_their_own(jobs: App) -> None:
    """A request knows the innermost application, so that its pages count, and no others."""
    mounts = list[BaseRoute]()
    for name in ("a", "b"):
        routes = JobRoutes(jobs)
        routes.post("/named", job={"name": name})(nothing)
        pages = Mount("/jobs", routes=status_routes(jobs, public=True))
        mounts.append(Mount(f"/{name}", app=Starlette(routes=[*routes, pages])))
    with TestClient(Starlette(routes=mounts, lifespan=jobs.lifespan())) as web:
        assert web.post("/b/named").headers["location"].startswith("/b/jobs/")


def another_lifespan(jobs: App) -> Any:
    @asynccontextmanager
    async def lifespan(asgi: Any) -> AsyncIterator[None]:
        async with jobs:
            yield

    return lifespan


async def nothing() -> None: ...
