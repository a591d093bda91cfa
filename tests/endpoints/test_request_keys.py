"""Request keys over HTTP: the same key is the same job, of one caller, for one request."""

import asyncio
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import pytest
from fastapi import Depends, FastAPI, Header

from headrace import App
from headrace.endpoints.fastapi import JobRouter, status_router
from headrace.endpoints.request import EndpointRequest, key_of, values_of
from headrace.http.problems import Problem
from tests.endpoints.serving import serving
from tests.support.apps import ENGINES, url_of

pytestmark = pytest.mark.timeout(120)


def caller(x_caller: Annotated[str | None, Header()] = None) -> str | None:
    return x_caller


def trace() -> str:
    return str(uuid4())


def service(url: str, **options: Any) -> tuple[App, FastAPI]:
    jobs = App(url)
    router = JobRouter(jobs, **options)

    @router.post("/orders/{shop}")
    async def order(
        shop: str,
        lines: dict[str, int],
        trace: Annotated[str, Depends(trace)],
        x_attempt: Annotated[int, Header()] = 0,
    ) -> int:
        return sum(lines.values())

    @router.post("/others/{shop}")
    async def other(shop: str) -> None: ...

    api = FastAPI(lifespan=jobs.lifespan())
    api.include_router(router)
    api.include_router(status_router(jobs, public=True), prefix="/jobs")
    return jobs, api


@pytest.mark.parametrize("engine", ENGINES)
async def test_200_requests_at_once_with_one_key_are_one_job(engine: str, tmp_path: Path) -> None:
    jobs, api = service(url_of(engine, tmp_path), identity=caller)
    async with serving(api) as web:
        headers = {"Idempotency-Key": "once", "X-Caller": "ann"}
        asked = [web.client.post("/orders/tea", json={"green": 1}, headers=headers) for _ in range(200)]
        answers = await asyncio.gather(*asked)
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert len({answer.headers["location"] for answer in answers}) == 1
        assert await jobs.jobs.count() == 1


async def test_another_body_route_or_query_under_a_key_is_refused(tmp_path: Path) -> None:
    jobs, api = service(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", identity=caller)
    async with serving(api) as web:
        ann = {"Idempotency-Key": "k", "X-Caller": "ann"}
        body = {"green": 1, "black": 2}
        first = await web.client.post("/orders/tea?a=1&a=2", json=body, headers=ann)
        again = {**ann, "X-Attempt": "2", "User-Agent": "another"}
        turned = {"black": 2, "green": 1}
        same = await web.client.post("/orders/tea?a=1&a=2", json=turned, headers=again)
        assert (same.status_code, same.json()["id"]) == (202, first.json()["id"]), "what counts is the same"
        for path, other in (
            ("/orders/tea?a=1&a=2", {"green": 2}),
            ("/orders/coffee?a=1&a=2", body),
            ("/orders/tea?a=2&a=1", body),
            ("/orders/tea", body),
        ):
            answer = await web.client.post(path, json=other, headers=ann)
            assert (answer.status_code, answer.json()["code"]) == (422, "key-reused"), path
            assert answer.headers["content-type"] == "application/problem+json"
        assert (await web.client.post("/others/tea", headers=ann)).status_code == 202, "another route, another job"
        assert await jobs.jobs.count() == 2


async def test_keys_belong_to_callers(tmp_path: Path) -> None:
    jobs, api = service(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", identity=caller)
    async with serving(api) as web:
        ids = set[str]()
        for who in ("ann", "bob"):
            headers = {"X-Async-Request-Id": "k", "X-Caller": who}
            ids.add((await web.client.post("/orders/tea", json={}, headers=headers)).json()["id"])
        assert len(ids) == 2
        answer = await web.client.post("/orders/tea", json={}, headers={"Idempotency-Key": "k"})
        assert (answer.status_code, answer.json()["code"]) == (400, "key-without-caller")
        assert "identity=" in answer.json()["detail"]
        assert "shared_keys=True" in answer.json()["detail"]
        assert await jobs.jobs.count() == 2


async def test_keys_can_be_shared_by_callers_who_are_not_known(tmp_path: Path) -> None:
    jobs, api = service(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal", shared_keys=True)
    async with serving(api) as web:
        for _ in range(2):
            answer = await web.client.post("/orders/tea", json={}, headers={"Idempotency-Key": "k"})
            assert answer.status_code == 202
        assert await jobs.jobs.count() == 1


def asked(*headers: tuple[str, str], identity: str | None = "ann") -> EndpointRequest:
    return EndpointRequest(headers=values_of(headers), identity=identity)


def test_a_request_has_one_key() -> None:
    assert key_of(asked(), shared=False) is None
    assert key_of(asked(("idempotency-key", " a "), ("x-async-request-id", "a")), shared=False) == "a"
    for headers in (
        [("idempotency-key", "a"), ("idempotency-key", "b")],
        [("idempotency-key", "a"), ("x-async-request-id", "b")],
        [("idempotency-key", "")],
        [("idempotency-key", "x" * 600)],
    ):
        with pytest.raises(Problem) as refused:
            key_of(asked(*headers), shared=True)
        assert refused.value.status == 400
