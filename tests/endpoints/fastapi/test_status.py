"""The status pages of jobs, asked over HTTP, and who may see them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, cast
from uuid import UUID

import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.routing import Mount

from headrace import App, Context, JobOptions, Retry
from headrace.core.job import Job
from headrace.endpoints.fastapi import Answers, JobRouter, status_router
from headrace.endpoints.responses import EndpointResponse
from headrace.endpoints.starlette import JobRoutes, status_routes
from headrace.endpoints.tokens import Tokens
from headrace.errors import ConfigError
from headrace.testing import FakeClock
from tests.endpoints.serving import read_events, serving
from tests.support.until import until

pytestmark = pytest.mark.timeout(120)

OLD = UUID("01800000-0000-7000-8000-000000000000")
"""An id of 2022."""
NEVER = UUID("01ffffff-0000-7000-8000-000000000000")


ASKED = [("GET", ""), ("GET", "/result"), ("GET", "/events"), ("DELETE", ""), ("POST", "/retry")]
"""Everything that can be asked of a job."""


def caller(x_caller: Annotated[str | None, Header()] = None) -> str | None:
    return x_caller


def may_see(x_caller: Annotated[str | None, Header()] = None) -> None:
    if x_caller is None:
        raise HTTPException(401)


class Service:
    """Jobs that wait until they may go on, and the pages that show them."""

    def __init__(self, folder: Path, identity: Any = None, **pages: Any) -> None:
        self.jobs = App(f"sqlite:///{folder}/jobs.db?synchronous=normal", defaults={"retry": Retry(0)})
        router = JobRouter(self.jobs, identity=identity)
        self.go = asyncio.Event()

        @router.post("/wait/{n}")
        async def wait(ctx: Context, n: int) -> int:
            ctx.progress(50, "half")
            await self.go.wait()
            return n

        @router.post("/fail")
        async def fail() -> None:
            raise HTTPException(403, "not you")

        @router.post("/later", job=JobOptions(retry=Retry(1, initial=0.001, jitter=False)))
        async def later(ctx: Context) -> str:
            if ctx.attempt == 1:
                raise ValueError("at first")
            return "then"

        @router.post("/items")
        async def items(n: int) -> AsyncIterator[int]:
            for number in range(n):
                yield number

        self.pages = pages or {"public": True}
        self.router = router

    def build(self, worker: bool = True) -> FastAPI:
        api = FastAPI(lifespan=self.jobs.lifespan(worker=worker))
        api.include_router(self.router)
        api.include_router(status_router(self.jobs, **self.pages), prefix="/jobs")
        return api


def within(address: str, part: str, query: str = "") -> str:
    """The address of a part of a job."""
    base, _, token = address.partition("?")
    return f"{base}/{part}?{token}{query}"


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path, acts=True, public=True)


async def test_a_job_is_shown_until_it_has_ended(service: Service) -> None:
    async with serving(service.build()) as web:
        place = (await web.client.post("/wait/7")).headers["location"]
        running = await web.client.get(place + "&wait=30")
        while running.json()["status"] != "running" or running.json()["progress"] is None:
            running = await web.client.get(place + "&wait=30", headers={"If-None-Match": running.headers["etag"]})
        assert running.json()["progress"] == {"percent": 50.0, "message": "half"}
        assert running.json()["started_at"] is not None
        tag = {"If-None-Match": running.headers["etag"]}
        assert (await web.client.get(place, headers=tag)).status_code == 304
        assert (await web.client.get(place + "&wait=0.2", headers=tag)).status_code == 304
        result = await web.client.get(within(place, "result"))
        assert (result.status_code, result.headers["location"]) == (202, place)
        assert int(result.headers["retry-after"]) >= 1
        waiting = asyncio.create_task(web.client.get(place + "&wait=30", headers=tag))
        ended = asyncio.create_task(web.client.get(within(place, "result", "&wait=30")))
        service.go.set()
        done = (await waiting).json()
        assert (done["status"], done["result"]) == ("completed", 7)
        assert (await ended).json() == 7
        assert (await web.client.get(place, headers=tag)).status_code == 200
        assert (await web.client.get(place + "&wait=30")).json() == done, "what has ended is not waited for"


async def test_the_result_of_a_failed_job_is_its_error(service: Service) -> None:
    async with serving(service.build()) as web:
        place = (await web.client.post("/fail")).headers["location"]
        answer = await web.client.get(within(place, "result", "&wait=30"))
        assert (answer.status_code, answer.json()["detail"]) == (403, "not you")
        shown = (await web.client.get(place)).json()
        assert (shown["status"], shown["reason"]) == ("failed", "non_retryable")
        error = {"code": "HTTPException", "message": "403: not you", "status": 403, "data": "not you"}
        assert shown["error"] == error


async def test_delete_cancels_and_an_ended_job_is_a_conflict(service: Service) -> None:
    async with serving(service.build()) as web:
        place = (await web.client.post("/wait/1")).headers["location"]
        later = (await service.jobs.tasks["wait"].options(delay=3600).submit(2)).id
        await service.jobs.jobs.handle(later).cancel()

        async def running() -> bool:
            return bool((await web.client.get(place)).json()["status"] == "running")

        await until(running)
        answer = await web.client.delete(place)
        assert answer.status_code == 202
        assert answer.json()["cancel_requested_at"] is not None
        ended = await web.client.get(within(place, "result", "&wait=30"))
        assert (ended.status_code, ended.json()["code"]) == (409, "cancelled")
        again = await web.client.delete(place)
        assert (again.status_code, again.json()["code"]) == (409, "refused")
        assert again.headers["content-type"] == "application/problem+json"


async def test_a_queued_job_is_cancelled_at_once_and_retried(service: Service) -> None:
    async with serving(service.build(worker=False)) as web:
        place = (await web.client.post("/wait/1")).headers["location"]
        answer = await web.client.delete(place)
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
        answer = await web.client.post(within(place, "retry"))
        assert (answer.status_code, answer.json()["status"]) == (200, "queued")
        answer = await web.client.post(within(place, "retry"))
        assert (answer.status_code, answer.json()["code"]) == (409, "refused")
        answer = await web.client.post(within(place, "discard"))
        assert answer.status_code == 409


async def test_an_ended_job_is_discarded(service: Service) -> None:
    service.go.set()
    async with serving(service.build()) as web:
        answer = await web.client.post("/wait/1", headers={"Prefer": "wait=30"})
        place = answer.headers["content-location"]
        answer = await web.client.post(within(place, "discard"))
        assert (answer.status_code, answer.json()["reason"]) == (200, "discarded")


@pytest.mark.parametrize("delete", ["cancel", "discard"])
async def test_delete_of_an_ended_job_discards_it_where_that_is_said(tmp_path: Path, delete: Any) -> None:
    service = Service(tmp_path, public=True, delete=delete)
    service.go.set()
    async with serving(service.build()) as web:
        place = (await web.client.post("/wait/7")).headers["location"]
        await web.client.get(within(place, "result", "&wait=30"))
        answer = await web.client.delete(place)
        if delete == "cancel":
            assert (answer.status_code, answer.json()["code"]) == (409, "refused")
            return
        assert (answer.status_code, answer.json()["status"], answer.json()["reason"]) == (200, "cancelled", "discarded")
        assert (await web.client.delete(place)).status_code == 200, "a second time changes nothing"
    with pytest.raises(ConfigError, match="delete must be 'cancel' or 'discard'"):
        status_router(service.jobs, public=True, delete="drop")  # type: ignore[arg-type]


async def test_the_attempts_of_a_job_are_shown_with_their_times(service: Service) -> None:
    async with serving(service.build(worker=False)) as web:
        answer = await web.client.post("/later")
        new, place = answer.json(), answer.headers["location"]
        assert (new["retry_count"], new["max_retries"], new["attempts"], new["worker"]) == (0, 1, [], None)
        async with service.jobs.worker() as worker:
            await web.client.get(within(place, "result", "&wait=30"))
            done = (await web.client.get(place)).json()
    assert (done["attempt"], done["retry_count"], done["max_retries"], done["worker"]) == (2, 1, 1, None)
    first, second = done["attempts"]
    assert [one["worker"] for one in (first, second)] == [str(worker.id)] * 2
    assert (first["number"], first["outcome"], first["error"]["message"]) == (1, "failed", "at first")
    assert (second["number"], second["outcome"], second["error"], second["retry_at"]) == (2, "completed", None, None)
    times = [first["started_at"], first["finished_at"], first["retry_at"], second["started_at"], second["finished_at"]]
    assert times == sorted(times)
    assert second["finished_at"] == done["finished_at"]


async def test_an_attempt_under_way_is_shown(service: Service) -> None:
    async with serving(service.build()) as web:
        place = (await web.client.post("/wait/7")).headers["location"]
        running = await web.client.get(place + "&wait=30")
        while running.json()["status"] != "running":
            running = await web.client.get(place + "&wait=30", headers={"If-None-Match": running.headers["etag"]})
        shown = running.json()
        [attempt] = shown["attempts"]
        assert (attempt["number"], attempt["outcome"], attempt["finished_at"]) == (1, None, None)
        assert (attempt["worker"], attempt["started_at"]) == (shown["worker"], shown["started_at"])
        assert shown["worker"] is not None
        service.go.set()


# -- which pages show the jobs of which router


def paired(folder: Path, **own: Any) -> tuple[App, FastAPI, APIRouter, APIRouter]:
    """An application with two status routers of one App."""
    jobs = App(f"sqlite:///{folder}/jobs.db?synchronous=normal")
    api = FastAPI(lifespan=jobs.lifespan())
    first, second = status_router(jobs, public=True), status_router(jobs, identity=caller)
    api.include_router(first, prefix="/open")
    api.include_router(second, prefix="/own")
    return jobs, api, first, second


async def work() -> None: ...


async def test_each_router_names_its_own_pages(tmp_path: Path) -> None:
    jobs, api, first, second = paired(tmp_path)
    for router, path in (
        (JobRouter(jobs, status=first), "/a"),
        (JobRouter(jobs, status=second, identity=caller), "/b"),
        (JobRouter(jobs, status=first, status_url="https://x.example/{id}?a=1"), "/c"),
    ):
        router.post(path, job={"name": path})(work)
        api.include_router(router)
    async with serving(api) as web:
        open_, own, elsewhere = [
            (await web.client.post(path, headers={"X-Caller": "ann"})).headers["location"]
            for path in ("/a", "/b", "/c")
        ]
        assert open_.startswith("/open/")
        assert own.startswith("/own/")
        assert elsewhere.startswith("https://x.example/")
        assert "?a=1&token=" in elsewhere
        shown = (await web.client.get(open_)).json()
        assert shown["links"]["self"] == open_
        shown = (await web.client.get(own, headers={"X-Caller": "ann"})).json()
        assert shown["links"]["self"] == own, "the pages name themselves, not the others of their App"


def test_a_wrong_pair_of_router_and_pages_does_not_start(tmp_path: Path) -> None:
    jobs, api, _, second = paired(tmp_path)
    with pytest.raises(ConfigError, match="status shows jobs of another App"):
        JobRouter(App("memory://"), status=second)
    with pytest.raises(ConfigError, match="status must be what shows jobs"):
        JobRouter(jobs, status=APIRouter())
    with pytest.raises(ConfigError, match=r"does not know its callers.*same identity"):
        JobRouter(jobs, status=second)
    api.include_router(JobRouter(jobs))
    with pytest.raises(ConfigError, match=r"at 2 places.*JobRouter\(jobs, status=...\)"), TestClient(api):
        pass
    alone = FastAPI()
    alone.include_router(JobRouter(jobs, status=second, identity=caller))
    with pytest.raises(ConfigError, match="does not include the pages that status names"), TestClient(alone):
        pass
    unknown = FastAPI()
    unknown.include_router(JobRouter(jobs))
    unknown.include_router(status_router(jobs, identity=caller), prefix="/jobs")
    with pytest.raises(ConfigError, match="nobody would see its jobs"), TestClient(unknown):
        pass


def test_a_routers_own_lifespan_goes_on(tmp_path: Path) -> None:
    began = list[str]()

    @asynccontextmanager
    async def lifespan(asgi: Any) -> AsyncIterator[None]:
        began.append("began")
        yield

    jobs = App(f"sqlite:///{tmp_path}/jobs.db")
    api = FastAPI()
    api.include_router(JobRouter(jobs, lifespan=lifespan))
    api.include_router(JobRouter(jobs, on_startup=[lambda: began.append("started")]))
    with TestClient(api):
        pass
    assert set(began) == {"began", "started"}  # FastAPI may call the latter twice


def test_a_wrong_pair_is_refused_at_the_start_also_beside_handlers_of_the_start(tmp_path: Path) -> None:
    jobs = App(f"sqlite:///{tmp_path}/jobs.db")
    router = JobRouter(jobs, on_startup=[lambda: None])
    router.post("/add")(_nothing)
    api = FastAPI()
    api.include_router(router)
    for prefix in ("/a", "/b"):
        api.include_router(status_router(jobs, public=True, prefix=prefix))
    with pytest.raises(ConfigError, match="status"), TestClient(api):
        pass


async def _nothing() -> None: ...


async def test_a_service_that_answers_by_itself_still_deletes(tmp_path: Path) -> None:
    class Own(Answers):
        def shown(self, job: Job, address: str | None, status: int = 200) -> EndpointResponse:
            return EndpointResponse(status, b'{"mine": true}', {})

    service = Service(tmp_path, public=True, answers=Own())
    async with serving(service.build(worker=False)) as web:
        place = (await web.client.post("/wait/1")).headers["location"]
        assert (await web.client.delete(place)).json() == {"mine": True}


async def test_acts_are_there_only_if_they_are_asked_for(tmp_path: Path) -> None:
    service = Service(tmp_path)
    async with serving(service.build(worker=False)) as web:
        place = (await web.client.post("/wait/1")).headers["location"]
        assert (await web.client.post(within(place, "retry"))).status_code == 404


async def test_events_tell_a_job_to_its_end_and_go_on_where_a_reader_left_off(service: Service) -> None:
    async with serving(service.build()) as web:
        place = (await web.client.post("/wait/7")).headers["location"]
        reading = asyncio.create_task(read_events(web.client, within(place, "events")))

        async def half() -> bool:
            return bool((await web.client.get(place)).json()["progress"])

        await until(half)
        service.go.set()
        events = await reading
        assert events[0].name == "snapshot"
        assert set(events[0].data) == {"job"}
        assert "payload" not in events[0].data["job"]
        assert (events[-1].name, events[-1].data["status"], events[-1].data["result"]) == ("status", "completed", 7)
        last = {"Last-Event-ID": events[-1].id}
        assert (await web.client.get(within(place, "events"), headers=last)).status_code == 204
        assert (await web.client.get(within(place, "events", f"&since={events[-1].id}"))).status_code == 204
        again = await read_events(web.client, within(place, "events"), **{"Last-Event-ID": events[0].id})
        assert [one.name for one in again][-1] == "status"


async def test_events_tell_of_retries_and_items_without_tracebacks(service: Service) -> None:
    async with serving(service.build()) as web:
        place = (await web.client.post("/later")).headers["location"]
        events = await read_events(web.client, within(place, "events"))
        for retry in (one for one in events if one.name == "retry"):
            assert retry.data["error"] == {"code": "ValueError", "message": "at first"}
        assert events[-1].data["result"] == "then"
        assert not any("Traceback" in str(one.data) for one in events)
        place = (await web.client.post("/items?n=3")).headers["location"]
        events = await read_events(web.client, within(place, "events"))
        assert [one.data["value"] for one in events if one.name == "item"] == [0, 1, 2]


@pytest.mark.parametrize("logs", [True, False])
async def test_log_lines_are_told_only_if_they_are_asked_for(tmp_path: Path, logs: bool) -> None:
    jobs = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
    router = JobRouter(jobs)

    @router.post("/")
    async def talk() -> None:
        logging.getLogger("talk").warning("hello")

    api = FastAPI(lifespan=jobs.lifespan(worker=True))
    api.include_router(router)
    api.include_router(status_router(jobs, public=True, logs=logs), prefix="/jobs")
    async with serving(api) as web:
        place = (await web.client.post("/", headers={"Prefer": "wait=30"})).headers["content-location"]
        events = await read_events(web.client, within(place, "events"))
        assert [one.data["message"] for one in events if one.name == "log"] == (["hello"] if logs else [])


async def test_a_reader_that_hangs_up_is_forgotten(service: Service) -> None:
    async with serving(service.build()) as web:
        place = (await web.client.post("/wait/7")).headers["location"]
        async with web.client.stream("GET", within(place, "events")) as answer:
            assert answer.status_code == 200
        audience = service.jobs.session.followers
        await until(lambda: not audience._followed)


# -- jobs that are not there


async def test_what_is_not_there_is_a_404_or_gone(service: Service) -> None:
    async with serving(service.build(worker=False)) as web:
        tokens = Tokens(service.jobs)
        await tokens.ready()
        for id, status in ((OLD, 410), (NEVER, 404)):
            for part in ("", "/result", "/events"):
                answer = await web.client.get(f"/jobs/{id}{part}?token={tokens.of(id)}")
                assert answer.status_code == status, part
        assert (await web.client.get("/jobs/no-id?token=x")).status_code == 404


async def test_a_job_that_was_pruned_is_gone(tmp_path: Path) -> None:
    clock = FakeClock(datetime.now(UTC) - timedelta(days=400))
    jobs = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", clock=clock)
    router = JobRouter(jobs)

    @router.post("/")
    async def quick() -> int:
        return 1

    api = FastAPI(lifespan=jobs.lifespan(worker=True))
    api.include_router(router)
    api.include_router(status_router(jobs, public=True), prefix="/jobs")
    async with serving(api) as web:
        place = (await web.client.post("/", headers={"Prefer": "wait=30"})).headers["content-location"]
        assert (await web.client.get(within(place, "result"))).status_code == 200
        clock.advance(days=40)
        assert await jobs.store.prune() == 1
        gone = await web.client.get(within(place, "result"))
        assert (gone.status_code, gone.json()["code"]) == (410, "gone")


# -- who may see them


def _api(jobs: App, *routers: Any, **options: Any) -> FastAPI:
    api = FastAPI(lifespan=jobs.lifespan(), **options)
    for router, more in routers:
        api.include_router(router, **more)
    return api


def _protected() -> dict[str, Any]:
    """Ways to say who may look."""

    def nested(jobs: App) -> FastAPI:
        inner = APIRouter()
        inner.include_router(status_router(jobs), prefix="/jobs")
        return _api(jobs, (inner, {"prefix": "/v1", "dependencies": [Depends(may_see)]}))

    here, guards = {"prefix": "/jobs"}, [Depends(may_see)]
    return {
        "include": lambda jobs: _api(jobs, (status_router(jobs), {**here, "dependencies": guards})),
        "given": lambda jobs: _api(jobs, (status_router(jobs, dependencies=guards), here)),
        "application": lambda jobs: _api(jobs, (status_router(jobs), here), dependencies=guards),
        "identity": lambda jobs: _api(jobs, (status_router(jobs, identity=caller), here)),
        "public": lambda jobs: _api(jobs, (status_router(jobs, public=True), here)),
        "nested": nested,
    }


@pytest.mark.parametrize("way", _protected())
async def test_a_service_starts_whose_pages_are_protected(tmp_path: Path, way: str) -> None:
    api = _protected()[way](App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"))
    async with serving(api) as web:
        prefix = "/v1" if way == "nested" else ""
        answer = await web.client.get(f"{prefix}/jobs/{NEVER}")
        refused = {"identity": 404, "public": 403}
        assert answer.status_code == refused.get(way, 401)
        if way not in refused:
            answer = await web.client.get(f"{prefix}/jobs/{NEVER}", headers={"X-Caller": "ann"})
            assert answer.status_code == 404


def test_a_service_whose_pages_are_open_does_not_start(tmp_path: Path) -> None:
    jobs = App("memory://")
    api = _api(jobs, (status_router(jobs), {"prefix": "/jobs"}))
    with pytest.raises(ConfigError, match=r"job ids are no secrets.*public=True"), TestClient(api):
        pass


def test_pages_that_are_open_in_one_place_are_refused_in_all(tmp_path: Path) -> None:
    jobs = App("memory://")
    pages = status_router(jobs)
    api = _api(jobs, (pages, {"prefix": "/a", "dependencies": [Depends(may_see)]}), (pages, {"prefix": "/b"}))
    with pytest.raises(ConfigError, match="job ids are no secrets"), TestClient(api):
        pass


async def test_open_pages_of_a_mounted_application_show_nothing(tmp_path: Path) -> None:
    jobs = App("memory://")
    inner = FastAPI()
    inner.include_router(status_router(jobs), prefix="/jobs")
    outer = FastAPI(lifespan=jobs.lifespan())
    outer.mount("/inner", inner)
    async with serving(outer) as web:
        assert (await web.client.get(f"/inner/jobs/{NEVER}")).status_code == 500


def test_a_secret_is_for_public_pages_and_must_be_long() -> None:
    with pytest.raises(ConfigError, match="public=True"):
        status_router(App("memory://"), secret="x" * 32)
    with pytest.raises(ConfigError, match="16 characters"):
        status_router(App("memory://"), public=True, secret="short")


async def test_public_pages_ask_for_the_token_of_the_job(service: Service) -> None:
    async with serving(service.build(worker=False)) as web:
        one, other = [(await web.client.post("/wait/1")).headers["location"] for _ in range(2)]
        assert (await web.client.get(one)).status_code == 200
        base, token = one.partition("?")[0], other.partition("?")[2]
        for query in ("", f"?{token}", "?token=", "?token=ä", f"?{token}x"):
            for method, part in ASKED:
                answer = await web.client.request(method, base + part + query)
                assert (answer.status_code, answer.json()["code"]) == (403, "status-token"), (query, part)


async def test_tokens_count_at_every_process_on_the_store(service: Service, tmp_path: Path) -> None:
    other = Service(tmp_path)
    async with serving(service.build(worker=False)) as web, serving(other.build(worker=False)) as second:
        place = (await web.client.post("/wait/1")).headers["location"]
        assert (await second.client.get(place)).status_code == 200


async def test_tokens_can_be_signed_with_a_secret_that_is_given(tmp_path: Path) -> None:
    places = []
    for secret in ("a" * 16, b"b" * 16):
        service = Service(tmp_path, public=True, secret=secret)
        async with serving(service.build(worker=False)) as web:
            places.append((await web.client.post("/wait/1")).headers["location"])
            assert (await web.client.get(places[-1])).status_code == 200
            assert (await web.client.get(places[0])).status_code == (200 if len(places) == 1 else 403)


async def test_everybody_sees_their_own_jobs(tmp_path: Path) -> None:
    service = Service(tmp_path, identity=caller, acts=True)
    service.pages = {"acts": True, "identity": caller}
    ann, bob = {"X-Caller": "ann"}, {"X-Caller": "bob"}
    async with serving(service.build(worker=False)) as web:
        place = (await web.client.post("/wait/1", headers=ann)).headers["location"]
        nobodys = (await web.client.post("/wait/1")).headers["location"]
        assert (await web.client.get(place, headers=ann)).status_code == 200
        absent = (await web.client.get(f"/jobs/{place.rpartition('/')[2][:-1]}0", headers=bob)).json()
        for headers in (bob, {}):
            for method, part in ASKED:
                answer = await web.client.request(method, place + part, headers=headers)
                assert answer.status_code == 404
                assert answer.json()["title"] == absent["title"]
            assert (await web.client.get(nobodys, headers=headers)).status_code == 404
        assert (await web.client.delete(place, headers=ann)).status_code == 200
        [act] = (await service.jobs.jobs.history(place.rpartition("/")[2])).events
        assert act.by == "ann"


# -- the document


def test_openapi_shows_every_page(service: Service) -> None:
    paths = service.build().openapi()["paths"]
    pages = {path: set(methods) for path, methods in paths.items() if path.startswith("/jobs")}
    assert pages == {
        "/jobs/{id}": {"get", "delete"},
        "/jobs/{id}/result": {"get"},
        "/jobs/{id}/events": {"get"},
        "/jobs/{id}/retry": {"post"},
        "/jobs/{id}/discard": {"post"},
    }
    shown = paths["/jobs/{id}"]["get"]
    assert {one["name"] for one in shown["parameters"]} == {"id", "wait", "if-none-match", "token", "words"}
    assert {"200", "304", "403", "404", "410", "422", "503"} == set(shown["responses"])
    assert {"200", "202", "409", "410"} <= set(paths["/jobs/{id}/result"]["get"]["responses"])


async def test_answers_of_the_pages_can_be_replaced(tmp_path: Path) -> None:
    class Own(Answers):
        def document(self, job: Any, address: str | None) -> Any:
            return {"ticket": str(job.id)}

    service = Service(tmp_path, public=True, answers=Own())
    async with serving(service.build(worker=False)) as web:
        place = (await web.client.post("/wait/1")).headers["location"]
        assert set((await web.client.get(place)).json()) == {"ticket"}


def _hiding(jobs: App, errors: Any, kind: str) -> Any:
    """A service whose handlers fail in several ways, of either framework."""
    made = JobRouter(jobs, errors=errors) if kind == "fastapi" else JobRoutes(jobs, errors=errors)

    @made.post("/broken", job=JobOptions(retry=Retry(1, initial=0.001, jitter=False)))
    async def broken() -> None:
        try:
            raise KeyError("SECRET cause")
        except KeyError:
            raise ValueError("SECRET at db.internal") from None

    @made.post("/meant", job=JobOptions(retry=Retry(0)))
    async def meant() -> None:
        try:
            raise KeyError("SECRET cause")
        except KeyError as error:
            raise HTTPException(404, "there is no such report") from error

    @made.post("/down", job=JobOptions(retry=Retry(0)))
    async def down() -> None:
        raise HTTPException(502, "SECRET upstream")

    if isinstance(made, JobRouter):
        api = FastAPI(lifespan=jobs.lifespan(worker=True))
        api.include_router(made)
        api.include_router(status_router(jobs, public=True, acts=True, errors=errors), prefix="/jobs")
        return api
    pages = Mount("/jobs", routes=status_routes(jobs, public=True, acts=True, errors=errors))
    return Starlette(routes=[*made, pages], lifespan=jobs.lifespan(worker=True))


@pytest.mark.parametrize("kind", ["fastapi", "starlette"])
async def test_errors_that_are_hidden_leave_on_no_way(tmp_path: Path, kind: str) -> None:
    jobs = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
    async with serving(_hiding(jobs, "hidden", kind)) as web:
        for path, status in (("/broken", 500), ("/meant", 404), ("/down", 502)):
            waited = await web.client.post(path, headers={"Prefer": "wait=30"})
            assert waited.status_code == status
            place = waited.headers["content-location"]
            answers = [waited, await web.client.get(place), await web.client.get(within(place, "result"))]
            events = await read_events(web.client, within(place, "events"))
            answers.append(await web.client.post(within(place, "discard")))
            said = " ".join(answer.text for answer in answers) + str(events)
            assert "SECRET" not in said, path
            assert "KeyError" not in said, path
            if path == "/meant":
                assert waited.json()["detail"] == "there is no such report", "it was written for whoever asked"
                continue
            job = await jobs.jobs.get(place.partition("/jobs/")[2].partition("?")[0])
            reference = f"{job.id}/{job.attempt}"
            assert (waited.json()["code"], waited.json()["reference"]) == ("Error", reference)
            assert answers[1].json()["error"]["reference"] == reference
            assert job.error is not None
            assert "SECRET" in job.error.message, "the operator finds it"
            assert any("SECRET" in str(one.error) for one in (await jobs.jobs.history(job.id)).attempts)


async def test_errors_are_shown_unless_they_are_hidden(tmp_path: Path) -> None:
    jobs = App(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
    async with serving(_hiding(jobs, "shown", "fastapi")) as web:
        answer = await web.client.post("/broken", headers={"Prefer": "wait=30"})
        assert answer.json()["detail"] == "SECRET at db.internal"
    with pytest.raises(ConfigError, match="errors must be 'shown' or 'hidden'"):
        JobRouter(jobs, errors=cast(Any, "secret"))


async def test_pages_speak_the_words_of_the_service_and_of_the_request(tmp_path: Path) -> None:
    service = Service(tmp_path, public=True, words="asyncendpoints", acts=True)
    router = JobRouter(service.jobs, words="asyncendpoints")

    @router.post("/overrun", job=JobOptions(timeout=0.02))
    async def overrun() -> None:
        await asyncio.Event().wait()

    api = service.build()
    api.include_router(router)
    async with serving(api) as web:
        accepted = await web.client.post("/overrun")
        assert accepted.json()["status"] == "Queued"
        place = accepted.headers["location"]
        [*_, last] = await read_events(web.client, place.replace("?", "/events?"))
        assert (last.data["status"], last.data["reason"]) == ("Failed", "timeout")
        shown = {words: await web.client.get(f"{place}{words}") for words in ("", "&words=emprops", "&words=headrace")}
        assert [one.json()["status"] for one in shown.values()] == ["Failed", "timeout", "failed"]
        assert len({one.headers["etag"] for one in shown.values()}) == 3
        for words, one in shown.items():
            known = await web.client.get(f"{place}{words}", headers={"If-None-Match": one.headers["etag"]})
            assert (known.status_code, known.headers["etag"]) == (304, one.headers["etag"])
        first, *_ = await read_events(web.client, place.replace("?", "/events?") + "&words=osqueue")
        assert first.data["job"]["status"] == "exhausted"
        refused = await web.client.delete(f"{place}&words=surefire")
        assert (refused.status_code, "is Dead letter already" in refused.json()["detail"]) == (409, True)
        assert (await web.client.post(place.replace("?", "/discard?"))).json()["status"] == "Canceled"
        assert (await web.client.get(f"{place}&words=klingon")).status_code == 422
        waiting = (await web.client.post("/wait/1")).headers["location"]
        held = await web.client.get(waiting.replace("?", "/result?") + "&words=jobmaster")
        assert (held.status_code, held.json()["status"] in ("AssignedToBucket", "Queued", "Processing")) == (202, True)
        service.go.set()


def test_words_that_are_unknown_are_refused_at_once(tmp_path: Path) -> None:
    jobs, unknown = App(f"sqlite:///{tmp_path}/jobs.db"), cast("Any", "klingon")
    for make in (
        lambda: status_router(jobs, public=True, words=unknown),
        lambda: status_routes(jobs, public=True, words=unknown),
        lambda: JobRouter(jobs, words=unknown),
        lambda: JobRoutes(jobs, words=unknown),
    ):
        with pytest.raises(ConfigError, match="words must be one of headrace, emprops"):
            make()
