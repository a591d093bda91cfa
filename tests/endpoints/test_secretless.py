"""A web application without the secret that the others have: it cannot make addresses of public pages, and says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.routing import Mount

from headrace import App
from headrace.endpoints.fastapi import JobRouter, status_router
from headrace.endpoints.flask import JobBlueprint, status_blueprint
from headrace.endpoints.starlette import JobRoutes, status_routes
from tests.endpoints.test_flask import server_of
from tests.support.apps import url_of

SECRET = "a secret of this test, and of no other"


def _fastapi(jobs: App) -> Any:
    web, router = FastAPI(), JobRouter(jobs)

    @router.post("/work")
    async def work(n: int) -> int:
        return n

    web.include_router(router)
    web.include_router(status_router(jobs, public=True), prefix="/jobs")
    return web


def _starlette(jobs: App) -> Any:
    routes = JobRoutes(jobs)

    @routes.post("/work")
    async def work(n: int) -> int:
        return n

    return Starlette(routes=[*routes, Mount("/jobs", routes=status_routes(jobs, public=True))])


def _flask(jobs: App) -> Flask:
    web, blueprint = Flask(__name__), JobBlueprint(jobs, "work", __name__)

    @blueprint.post("/work")
    def work(n: int) -> int:
        return n

    web.register_blueprint(blueprint)
    web.register_blueprint(status_blueprint(jobs, public=True), url_prefix="/jobs")
    return web


@asynccontextmanager
async def _client(web: Any) -> AsyncIterator[httpx2.AsyncClient]:
    if isinstance(web, Flask):
        with server_of(web) as address:
            async with httpx2.AsyncClient(base_url=address, timeout=30, trust_env=False) as client:
                yield client
    else:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=web), base_url="http://here") as client:
            yield client


@pytest.mark.parametrize("make", [_fastapi, _starlette, _flask])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_it_answers_503_and_stores_nothing(make: Any, store: str, tmp_path: Path) -> None:
    url = url_of(store, tmp_path)
    async with App(url, secret=SECRET) as others:
        await others.session.vault.derives()
        async with App(url) as jobs, _client(make(jobs)) as client:
            for answer in (
                await client.post("/work", params={"n": 1}, json={"n": 1}),
                await client.get(f"/jobs/{uuid4()}", params={"token": "t"}),
            ):
                assert answer.status_code == 503, answer.text
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["type"].endswith("/secret-mismatch")
                assert "HEADRACE_SECRET" in answer.json()["detail"]
            assert await jobs.jobs.count() == 0
