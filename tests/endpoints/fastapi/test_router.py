"""Routes that are jobs, asked over HTTP: what is checked, what is stored, what runs, and what is answered."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from fastapi import (
    APIRouter,
    BackgroundTasks,
    Body,
    Cookie,
    Depends,
    FastAPI,
    File,
    Form,
    Header,
    HTTPException,
    Query,
    Request,
    Response,
    UploadFile,
)
from fastapi.responses import JSONResponse
from fastapi.security import OAuth2PasswordBearer
from pydantic import BaseModel, HttpUrl, SecretStr

from headrace import App, Context, Draft, JobOptions, Retry
from headrace.client.task import Task
from headrace.core.job import Job
from headrace.endpoints.fastapi import Answers, InWorker, JobRouter, MadeInWorker, status_router
from headrace.endpoints.fastapi.options import AllRouterOptions, RouterOptions
from headrace.errors import ConfigError, DuplicateTask, InvalidPayload, Unavailable
from tests.endpoints.serving import serving
from tests.support.until import until

pytestmark = pytest.mark.timeout(120)

WAIT = {"Prefer": "wait=60"}


class Colour(Enum):
    RED = "red"


class Item(BaseModel):
    name: str
    price: Decimal
    day: date | None = None
    colour: Colour = Colour.RED


class Report(BaseModel):
    title: str
    items: list[Item]


def caller(x_caller: Annotated[str | None, Header()] = None) -> str | None:
    return x_caller


class Service:
    """A FastAPI application with routes that are jobs."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.jobs = App(f"sqlite:///{folder}/jobs.db?synchronous=normal", defaults={"retry": Retry(0)})
        self.router = JobRouter(self.jobs, **{"longest_wait": 60, **options})

    def build(self, worker: bool = True) -> FastAPI:
        api = FastAPI(lifespan=self.jobs.lifespan(worker=worker))
        api.include_router(self.router)
        api.include_router(status_router(self.jobs, public=True), prefix="/jobs")
        return api

    async def job(self, answer: Any) -> Job:
        return await self.jobs.jobs.get(answer.json()["id"])


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path)


# -- what handlers are called with


async def test_a_handler_is_called_with_what_fastapi_would_call_it_with(service: Service) -> None:
    seen = list[Any]()

    @service.router.post("/{year}/{kind}")
    async def everything(
        item: Item,
        year: int,
        kind: Literal["a", "b"],
        x_user: Annotated[str, Header()],
        q: Annotated[list[str], Query()],
        at: datetime,
        size: Annotated[float, Query(gt=0)] = 1.5,
        old: str | None = Query(None, alias="the-old"),
    ) -> str:
        seen.append((item, year, kind, x_user, q, at, size, old))
        return "done"

    @service.router.put("/embedded", job=JobOptions(timeout=5))
    def embedded(item: Annotated[Item, Body(embed=True)], ids: set[UUID], note: str = Body()) -> list[str]:
        seen.append((item, ids, note))
        return sorted(map(str, ids))

    body = {"name": "tea", "price": "3.20", "day": "2026-01-31"}
    async with serving(service.build()) as web:
        answer = await web.client.post(
            "/2026/a?q=1&q=2&at=2026-01-31T08:00:00Z&the-old=x", json=body, headers={**WAIT, "X-User": "ann"}
        )
        assert (answer.status_code, answer.json()) == (200, "done"), answer.text
        ids = [str(UUID(int=1)), str(UUID(int=2))]
        answer = await web.client.put("/embedded", json={"item": body, "ids": ids, "note": "n"}, headers=WAIT)
        assert (answer.status_code, answer.json()) == (200, ids), answer.text
    item = Item(name="tea", price=Decimal("3.20"), day=date(2026, 1, 31))
    at = datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert seen == [
        (item, 2026, "a", "ann", ["1", "2"], at, 1.5, "x"),
        (item, {UUID(int=1), UUID(int=2)}, "n"),
    ]


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
async def test_every_method_can_be_a_job(service: Service, method: str) -> None:
    @getattr(service.router, method)("/things/{n}")  # type: ignore[untyped-decorator]
    async def thing(n: int) -> int:
        return n + 1

    async with serving(service.build()) as web:
        answer = await web.client.request(method, "/things/1", headers=WAIT)
        assert (answer.status_code, answer.json()) == (200, 2)


async def test_api_route_makes_one_task_of_many_methods_and_head_stays_plain(service: Service) -> None:
    @service.router.api_route("/both", methods=["PUT", "POST"], job=JobOptions(queue="both"))
    async def both() -> str:
        return "both"

    @service.router.head("/plain")
    async def head() -> Response:
        return Response(headers={"x-plain": "yes"})

    @service.router.get("/plain", job=None)
    async def plain() -> str:
        return "at once"

    assert set(service.jobs.tasks) == {"both"}
    async with serving(service.build(worker=False)) as web:
        for method in ("PUT", "POST"):
            answer = await web.client.request(method, "/both")
            assert answer.status_code == 202
            assert (await service.job(answer)).queue == "both"
        assert (await web.client.head("/plain")).headers["x-plain"] == "yes"
        assert (await web.client.get("/plain")).json() == "at once"


async def test_the_decorator_gives_a_task(service: Service) -> None:
    @service.router.post("/sums")
    async def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    assert isinstance(add, Task)
    assert await add(1) == 3
    async with service.jobs, service.jobs.worker():
        assert await (await add.submit(5)).result(timeout=60) == 7


async def test_forms_and_small_uploads_are_kept(service: Service) -> None:
    seen = list[Any]()

    @service.router.post("/form")
    async def form(
        title: Annotated[str, Form()], one: UploadFile, more: list[UploadFile], raw: Annotated[bytes, File()]
    ) -> int:
        data = [await file.read() for file in (one, *more)]
        seen.append((title, one.filename, one.content_type, one.size, data, raw))
        return sum(map(len, data))

    files: Any = [
        ("one", ("a.txt", b"\x00\xff", "text/x-odd")),
        ("more", ("b", b"bb")),
        ("more", ("c", b"ccc")),
        ("raw", ("r", b"\x80")),
    ]
    async with serving(service.build()) as web:
        answer = await web.client.post("/form", data={"title": "t"}, files=files, headers=WAIT)
        assert (answer.status_code, answer.json()) == (200, 7), answer.text
    assert seen == [("t", "a.txt", "text/x-odd", 2, [b"\x00\xff", b"bb", b"ccc"], b"\x80")]


@pytest.mark.parametrize(("size", "what"), [(100_000, "file"), (3_000_000, "body")])
async def test_large_uploads_are_refused(service: Service, size: int, what: str) -> None:
    @service.router.post("/form")
    async def form(file: UploadFile) -> int:
        return 0

    async with serving(service.build(worker=False)) as web:
        answer = await web.client.post("/form", files={"file": ("big", b"x" * size)})
        assert answer.status_code == 413
        assert answer.headers["content-type"] == "application/problem+json"
        assert what in answer.json()["detail"]
        assert answer.json()["code"] == "too-large"

        assert (await service.jobs.stats.counts()).statuses == {}


async def test_a_body_of_unknown_length_is_not_read_beyond_the_limit(service: Service) -> None:
    @service.router.post("/json")
    async def json(text: Annotated[str, Body(embed=True)]) -> None: ...

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3000):
            yield b" " * 1000

    async with serving(service.build(worker=False)) as web:
        kind = {"content-type": "application/json"}
        answer = await web.client.post("/json", content=parts(), headers=kind)
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


async def test_a_length_that_is_announced_beside_chunks_is_not_believed(service: Service) -> None:
    @service.router.post("/json")
    async def json(text: Annotated[str, Body(embed=True)]) -> None: ...

    head = b"POST /json HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
    head += b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving(service.build(worker=False)) as web:
        host, _, port = web.address.rpartition("/")[2].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head + b"186A0\r\n%b\r\n" % (b" " * 100_000) * 30 + b"0\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.split()[1] in (b"413", b"400"), "read no further than any other; some servers refuse to read it"


async def test_a_payload_above_the_limit_is_refused(service: Service) -> None:
    @service.router.post("/text")
    async def text(text: Annotated[str, Body(embed=True)]) -> int:
        return len(text)

    async with serving(service.build(worker=False)) as web:
        answer = await web.client.post("/text", json={"text": "x" * 140_000})
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


async def test_types_that_only_pydantic_knows_come_back_as_they_were(service: Service) -> None:
    seen = list[Any]()

    @service.router.post("/url")
    async def url(link: HttpUrl, links: list[HttpUrl], maybe: HttpUrl | None = None) -> HttpUrl:
        seen.append((link, links, maybe))
        return link

    async with serving(service.build()) as web:
        link = "https://example.org/a"
        answer = await web.client.post("/url", params={"link": link}, json=[link], headers=WAIT)
        assert (answer.status_code, answer.json()) == (200, link), answer.text
    assert seen == [(HttpUrl(link), [HttpUrl(link)], None)]


async def test_a_context_is_hidden_from_fastapi(service: Service) -> None:
    @service.router.post("/ctx/{n}")
    def told(ctx: Context, n: int) -> dict[str, Any]:
        ctx.progress(50, "half")
        return {"n": n, "attempt": ctx.attempt, "headers": ctx.job.headers}

    async with serving(service.build()) as web:
        answer = await web.client.post("/ctx/7", headers={**WAIT, "User-Agent": "me"})
        assert answer.json() == {"n": 7, "attempt": 1, "headers": {"user-agent": ["me"]}}
        operation = (await web.client.get("/openapi.json")).json()["paths"]["/ctx/{n}"]["post"]
        assert [one["name"] for one in operation["parameters"]] == ["n"]


# -- dependencies


async def test_dependencies_are_resolved_at_the_request_and_stored(service: Service) -> None:
    calls = list[str]()

    def user(x_user: Annotated[str, Header()]) -> dict[str, str]:
        calls.append(x_user)
        return {"name": x_user}

    @service.router.post("/mine")
    async def mine(user: Annotated[dict[str, str], Depends(user)]) -> str:
        return user["name"]

    async with serving(service.build(worker=False)) as web:
        answer = await web.client.post("/mine", headers={"X-User": "ann"})
        assert (answer.status_code, calls) == (202, ["ann"])
        assert (await service.job(answer)).payload == {"user": {"name": "ann"}}


async def test_dependencies_in_the_worker_are_opened_and_closed_around_the_handler(service: Service) -> None:
    log = list[str]()

    class Session:
        def __init__(self, name: str) -> None:
            self.name = name

    @service.jobs.resource
    async def pool() -> AsyncIterator[str]:
        yield "pool"

    def name(ctx: Context, pool: Annotated[str, InWorker(pool)]) -> str:
        log.append("name")
        return f"{pool} {ctx.attempt}"

    async def session(name: Annotated[str, Depends(name)]) -> AsyncIterator[Session]:
        log.append("open")
        yield Session(name)
        log.append("close")

    def plain(name: Annotated[str, InWorker(name)]) -> Iterator[str]:
        yield name.upper()
        log.append("plain closed")

    @service.router.post("/with/{n}")
    async def with_session(
        n: int, db: Annotated[Session, InWorker(session)], text: Annotated[str, InWorker(plain)]
    ) -> str:
        log.append("run")
        return f"{n} {db.name} {text}"

    @service.router.post("/thread/{n}")
    def in_thread(n: int, text: Annotated[str, InWorker(plain)]) -> str:
        return f"{n} {text}"

    async with serving(service.build()) as web:
        answer = await web.client.post("/with/1", headers=WAIT)
        assert (answer.status_code, answer.json()) == (200, "1 pool 1 POOL 1"), answer.text
        assert log == ["name", "open", "run", "plain closed", "close"]
        assert (await web.client.post("/thread/2", headers=WAIT)).json() == "2 POOL 1"
        operation = (await web.client.get("/openapi.json")).json()["paths"]["/with/{n}"]["post"]
        assert [one["name"] for one in operation["parameters"]] == ["n"]


@dataclass
class Tools(MadeInWorker):
    number: Annotated[int, InWorker(lambda: 40)]
    text: Annotated[str, InWorker(lambda: "made")]


async def test_what_is_made_in_the_worker_is_no_part_of_the_request_nor_of_a_submit(service: Service) -> None:
    @service.router.post("/tools/{n}")
    async def use(ctx: Context, tools: Tools, n: int, more: int = 1) -> str:
        return f"{tools.text} {tools.number + n + more}"

    @service.router.put("/tools/{n}")
    def use_plainly(tools: Tools, n: int) -> int:
        return tools.number + n

    async with serving(service.build()) as web:
        answer = await web.client.post("/tools/1", headers=WAIT)
        assert (answer.status_code, answer.json()) == (200, "made 42"), answer.text
        assert (await web.client.put("/tools/2", headers=WAIT)).json() == 42
        operation = (await web.client.get("/openapi.json")).json()["paths"]["/tools/{n}"]["post"]
        assert [one["name"] for one in operation["parameters"]] == ["n", "more"]
        assert "requestBody" not in operation
        assert await use.run(1, 2) == "made 43", "arguments may be positional"
        assert await use.run(n=1) == "made 42"
        with pytest.raises(InvalidPayload, match="tools"):
            await use.submit(n=1, tools=3)  # type: ignore[call-arg]


def test_a_router_takes_the_arguments_of_fastapis_own() -> None:
    ours = AllRouterOptions.__annotations__.keys() | RouterOptions.__annotations__.keys()
    assert set(inspect.signature(APIRouter.__init__).parameters) - {"self"} <= ours


async def test_a_dependency_that_gives_no_json_says_so_at_its_first_use(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    @service.router.post("/bad")
    async def bad(thing: Annotated[Any, Depends(object)]) -> None: ...

    async with serving(service.build(worker=False)) as web:
        with caplog.at_level(logging.ERROR):
            answer = await web.client.post("/bad")
        assert answer.status_code == 500
        assert "'thing' cannot be stored with the job" in caplog.text
        assert "InWorker" in caplog.text


class Opaque:
    pass


def refusals() -> Iterator[tuple[Any, str]]:
    async def request(request: Request) -> None: ...
    async def background(tasks: BackgroundTasks) -> None: ...
    async def depends(thing: Annotated[Opaque, Depends(Opaque)]) -> None: ...
    async def token(token: Annotated[str, Depends(OAuth2PasswordBearer("/t"))]) -> None: ...
    async def header(authorization: Annotated[str, Header()]) -> None: ...
    async def cookie(session: Annotated[str, Cookie()]) -> None: ...
    async def secret(secret: Annotated[SecretStr, Body()]) -> None: ...
    async def response() -> JSONResponse:
        raise NotImplementedError

    def asynchronous(thing: Annotated[int, InWorker(asyncio.sleep)]) -> None: ...
    async def needs(thing: Annotated[int, InWorker(lambda request: request)]) -> None: ...
    async def names(*names: str) -> None: ...

    yield request, "does not outlive the request"
    yield background, "does not outlive the request"
    yield depends, "InWorker"
    yield token, "credentials"
    yield header, r"headers=\['authorization'\]"
    yield cookie, r"cookies=\['session'\]"
    yield secret, "SecretStr"
    yield response, "returns its result"
    yield asynchronous, "a worker has no request"
    yield needs, "a worker has no request to take it from"
    yield names, "any number of arguments"


@pytest.mark.parametrize(("fn", "why"), list(refusals()), ids=lambda one: getattr(one, "__name__", ""))
def test_what_cannot_be_stored_is_refused_where_it_is_written(service: Service, fn: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        service.router.post("/x")(fn)


def test_credentials_can_be_allowed_by_name(tmp_path: Path) -> None:
    router = JobRouter(App("memory://"), headers=["Authorization"], cookies=["session"])

    @router.post("/x")
    async def x(authorization: Annotated[str, Header()], session: Annotated[str, Cookie()]) -> None: ...

    assert isinstance(x, Task)


@pytest.mark.parametrize("option", ["response_model", "status_code", "response_class"])
def test_options_that_cannot_hold_are_refused(service: Service, option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        service.router.post("/x", **{option: None})


def test_two_handlers_of_one_name_are_refused(service: Service) -> None:
    def handler() -> None: ...

    service.router.post("/a")(handler)
    with pytest.raises(DuplicateTask, match=r"test_router\.py:\d+"):
        service.router.post("/b")(lambda_named())
    service.router.post("/c", job={"name": "another"})(lambda_named())


def lambda_named() -> Any:
    def handler() -> int:
        return 1

    return handler


# -- what is kept


async def test_headers_route_and_query_are_kept_as_they_were_given(tmp_path: Path) -> None:
    service = Service(tmp_path, headers=["X-Tag", "x-one"])

    @service.router.post("/a/{b}/{rest:path}")
    async def kept(b: int) -> None: ...

    headers = [("X-Tag", "1"), ("X-One", "one"), ("X-Tag", "2"), ("Authorization", "s"), ("X-Else", "e")]
    async with serving(service.build(worker=False)) as web:
        answer = await web.client.post("/a/3/x/y?z=2&a=1&z=1&empty=", headers=headers)
        job = await service.job(answer)
    assert job.headers == {"x-tag": ("1", "2"), "x-one": ("one",)}
    assert job.route == {"b": "3", "rest": "x/y"}
    assert job.query == (("z", "2"), ("a", "1"), ("z", "1"), ("empty", ""))
    assert job.payload == {"b": 3}


async def test_credentials_are_not_kept_unless_they_are_named(tmp_path: Path) -> None:
    service = Service(tmp_path, headers=["*"])

    @service.router.post("/")
    async def kept() -> None: ...

    secret = {"Authorization": "s", "Cookie": "s", "X-Api-Key": "s", "X-Auth-Token": "s", "X-Else": "e"}
    async with serving(service.build(worker=False)) as web:
        job = await service.job(await web.client.post("/", headers=secret))
    assert job.headers is not None
    assert "s" not in [one for values in job.headers.values() for one in values]
    assert job.headers["x-else"] == ("e",)


async def test_the_identity_becomes_the_customer(tmp_path: Path) -> None:
    service = Service(tmp_path, identity=caller)

    @service.router.post("/")
    async def mine() -> None: ...

    async with serving(service.build(worker=False)) as web:
        assert (await service.job(await web.client.post("/", headers={"X-Caller": "ann"}))).customer == "ann"
        assert (await service.job(await web.client.post("/"))).customer is None


# -- answers


async def test_the_answer_says_where_and_when_to_ask(service: Service) -> None:
    @service.router.post("/")
    async def work() -> None: ...

    async with serving(service.build(worker=False)) as web:
        answer = await web.client.post("/")
        assert answer.status_code == 202
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["location"].startswith(f"/jobs/{answer.json()['id']}?token=")
        assert answer.json()["links"]["self"] == answer.headers["location"]
        assert answer.json()["status"] == "queued"
        shown = await web.client.get(answer.headers["location"])
        assert shown.json() == answer.json()


async def test_a_service_behind_a_path_says_its_whole_address(service: Service) -> None:
    @service.router.post("/work")
    async def work() -> None: ...

    outer = FastAPI(lifespan=service.jobs.lifespan())
    outer.mount("/inner", service.build())
    async with serving(outer) as web:
        answer = await web.client.post("/inner/work")
        assert answer.headers["location"].startswith("/inner/jobs/")
        assert (await web.client.get(answer.headers["location"])).status_code == 200


async def test_the_place_of_the_status_pages_can_be_said(tmp_path: Path) -> None:
    service = Service(tmp_path, status_url="https://hub.example/api/jobs/{id}")

    @service.router.post("/")
    async def work() -> None: ...

    async with serving(service.build(worker=False)) as web:
        answer = await web.client.post("/")
        page, _, token = answer.headers["location"].partition("?token=")
        assert page == f"https://hub.example/api/jobs/{answer.json()['id']}"
        assert answer.json()["links"]["result"] == f"{page}/result?token={token}"
        here = f"/jobs/{answer.json()['id']}"
        assert (await web.client.get(f"{here}?token={token}")).status_code == 200, "it is the token of these pages"
        assert (await web.client.get(here)).status_code == 403
    with pytest.raises(ConfigError, match=r"status_url must have \{id\}"):
        JobRouter(service.jobs, status_url="https://hub.example/jobs")


async def test_prefer_wait_gives_the_result_or_the_job(service: Service) -> None:
    go = asyncio.Event()

    @service.router.post("/quick")
    async def quick() -> None:
        return None

    @service.router.post("/slow")
    async def slow() -> str:
        await go.wait()
        return "at last"

    async with serving(service.build()) as web:
        answer = await web.client.post("/quick", headers={"Prefer": "return=minimal, wait=60; a=b"})
        assert (answer.status_code, answer.content) == (200, b"null")
        assert answer.headers["preference-applied"] == "wait=60"
        assert answer.headers["content-location"].startswith("/jobs/")
        answer = await web.client.post("/quick", headers={"Prefer": "wait=600"})
        assert answer.headers["preference-applied"] == "wait=60", "as long as is allowed"
        answer = await web.client.post("/quick", headers={"Prefer": "respond-async"})
        assert (answer.status_code, answer.headers["preference-applied"]) == (202, "respond-async")
        answer = await web.client.post("/slow", headers={"Prefer": "wait=1"})
        assert (answer.status_code, answer.headers["preference-applied"]) == (202, "wait=1")
        assert answer.json()["status"] in ("accepted", "running")
        go.set()
        base, _, token = answer.headers["location"].partition("?")
        assert (await web.client.get(f"{base}/result?{token}&wait=30")).json() == "at last"


async def test_clients_that_prefer_nothing_can_be_waited_for_too(tmp_path: Path) -> None:
    service = Service(tmp_path, wait=30)

    @service.router.post("/quick")
    async def quick() -> int:
        return 1

    async with serving(service.build()) as web:
        answer = await web.client.post("/quick")
        assert (answer.status_code, answer.json(), answer.headers.get("preference-applied")) == (200, 1, None)
        assert (await web.client.post("/quick", headers={"Prefer": "respond-async"})).status_code == 202


async def test_a_client_that_hangs_up_leaves_the_job_running(service: Service) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @service.router.post("/slow")
    async def slow() -> str:
        begun.set()
        await go.wait()
        return "done"

    async with serving(service.build()) as web:
        asking = asyncio.create_task(web.client.post("/slow", headers=WAIT))
        await begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        go.set()

        async def completed() -> bool:
            return (await service.jobs.stats.counts()).statuses == {"completed": 1}

        await until(completed)


async def test_errors_have_their_own_status(service: Service) -> None:
    class Gone(Exception):
        http_status = 410

    @service.router.get("/errors/{kind}", job=JobOptions(retry=Retry(2)))
    async def errors(kind: str) -> None:
        try:
            raise KeyError("the first")
        except KeyError as error:
            if kind == "http":
                raise HTTPException(404, "no such thing") from error
            if kind == "data":
                raise HTTPException(422, [{"field": "x"}]) from None
            if kind == "own":
                raise Gone("it is gone") from None
            if kind == "later":
                raise HTTPException(503, "later") from None
            if kind == "large":
                raise HTTPException(409, {"much": "x" * 40_000}) from error
            raise ValueError("bad") from error

    def told(answer: Any) -> Any:
        return {name: one for name, one in answer.json().items() if name not in ("type", "title", "job_id")}

    async with serving(service.build()) as web:
        answer = await web.client.get("/errors/http", headers=WAIT)
        assert answer.headers["content-type"] == "application/problem+json"
        cause = {"code": "KeyError", "message": "'the first'"}
        http = {"status": 404, "code": "HTTPException", "detail": "no such thing", "reason": "non_retryable"}
        assert (answer.status_code, told(answer)) == (404, http | {"causes": [cause]})
        answer = await web.client.get("/errors/data", headers=WAIT)
        assert (answer.status_code, answer.json()["data"]) == (422, [{"field": "x"}])
        answer = await web.client.get("/errors/own", headers=WAIT)
        assert (answer.status_code, answer.json()["detail"]) == (410, "it is gone")
        answer = await web.client.get("/errors/large", headers=WAIT)
        assert (answer.status_code, "data" in answer.json()) == (409, False), "what does not fit goes, its status stays"
        answer = await web.client.get("/errors/later", headers={"Prefer": "wait=1"})
        assert (answer.status_code, answer.json()["status"]) == (202, "retrying"), "it is tried again"
        stored = await service.jobs.jobs.get((await web.client.get("/errors/http", headers=WAIT)).json()["job_id"])
        assert stored.error is not None
        assert stored.error.details == {
            "status": 404,
            "data": "no such thing",
            "causes": [{"type": "KeyError", "message": "'the first'"}],
        }


async def test_tracebacks_are_shown_where_a_service_says_so(tmp_path: Path) -> None:
    for shown in (True, False):
        service = Service(tmp_path / str(shown), answers=Answers(tracebacks=shown))
        (tmp_path / str(shown)).mkdir()

        @service.router.post("/")
        async def wrong() -> None:
            raise ValueError("wrong")

        async with serving(service.build()) as web:
            answer = await web.client.post("/", headers=WAIT)
            assert (answer.status_code, answer.json()["code"]) == (500, "ValueError")
            assert ("ValueError: wrong" in answer.json().get("traceback", "")) is shown
            assert ("Traceback" in answer.text) is shown


async def test_a_hook_may_answer_before_anything_is_stored(tmp_path: Path) -> None:
    async def before(request: Request, draft: Draft[Any]) -> Response | None:
        if request.headers.get("x-teapot"):
            return JSONResponse({"task": draft.task, "payload": draft.payload_text}, 418)
        return None

    service = Service(tmp_path, before_submit=before)

    @service.router.post("/{n}")
    async def tea(n: int) -> None: ...

    async with serving(service.build(worker=False)) as web:
        answer = await web.client.post("/1", headers={"X-Teapot": "yes"})
        assert (answer.status_code, answer.json()) == (418, {"task": "tea", "payload": '{"n":1}'})
        assert (await service.jobs.stats.counts()).statuses == {}
        assert (await web.client.post("/1")).status_code == 202


async def test_answers_are_made_by_methods_that_can_be_replaced(tmp_path: Path) -> None:
    class Own(Answers):
        def document(self, job: Job, address: str | None) -> Any:
            return {"ticket": str(job.id), "at": address}

    service = Service(tmp_path, answers=Own())

    @service.router.post("/")
    async def work() -> None: ...

    async with serving(service.build(worker=False)) as web:
        answer = await web.client.post("/")
        assert answer.json() == {"ticket": answer.json()["ticket"], "at": answer.headers["location"]}


async def test_a_store_that_is_away_is_a_503(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    @service.router.post("/")
    async def work() -> None: ...

    async with serving(service.build(worker=False)) as web:

        async def away(*args: Any) -> Any:
            raise Unavailable("no route to 10.0.0.7")

        monkeypatch.setattr(service.jobs.session.writer.inserts, "insert", away)
        answer = await web.client.post("/")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "10.0.0.7" not in answer.text


# -- the document


def test_openapi_has_the_parameters_and_the_body_that_fastapi_gives_a_plain_route(service: Service) -> None:
    def handler(
        item: Item,
        year: int,
        x_user: Annotated[str, Header()],
        link: HttpUrl,
        q: Annotated[list[str] | None, Query(max_length=3)] = None,
        file: UploadFile | None = None,
    ) -> Report:
        """What it does."""
        raise NotImplementedError

    service.router.post("/{year}", tags=["t"], summary="s")(handler)
    plain = FastAPI()
    plain.post("/{year}", tags=["t"], summary="s", status_code=202)(handler)
    ours, theirs = (api.openapi()["paths"]["/{year}"]["post"] for api in (service.build(), plain))
    for part in ("parameters", "requestBody", "tags", "summary", "description", "operationId"):
        assert ours[part] == theirs[part]
    assert (
        ours["responses"]["422"]["content"]["application/json"]
        == (theirs["responses"]["422"]["content"]["application/json"])
    )
    assert ours["responses"]["200"]["content"] == theirs["responses"]["202"]["content"]


def test_openapi_shows_every_answer(service: Service) -> None:
    @service.router.post("/", responses={418: {"description": "a teapot"}})
    async def work() -> Report:
        raise NotImplementedError

    api = service.build()
    responses = api.openapi()["paths"]["/"]["post"]["responses"]
    assert set(responses) == {"200", "202", "400", "409", "413", "418", "422", "500", "503"}
    assert responses["200"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Report"}
    assert "links" in responses["202"]["content"]["application/json"]["schema"]["properties"]
    assert set(responses["202"]["headers"]) == {"Location", "Retry-After", "Preference-Applied"}
    for status in ("400", "409", "413", "422", "500", "503"):
        assert "causes" in responses[status]["content"]["application/problem+json"]["schema"]["properties"]


def test_what_an_api_router_takes_works(service: Service) -> None:
    router = JobRouter(service.jobs, prefix="/p", tags=["a"], dependencies=[Depends(caller)], responses={418: {}})

    @router.post("/x")
    async def x() -> None: ...

    api = FastAPI()
    api.include_router(router, prefix="/q", tags=["b"])
    operation = api.openapi()["paths"]["/q/p/x"]["post"]
    assert set(operation["tags"]) == {"a", "b"}
    assert [one["name"] for one in operation["parameters"]] == ["x-caller"]
    assert "418" in operation["responses"]
