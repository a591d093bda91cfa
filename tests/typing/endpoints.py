"""What routes that are jobs are to the type checkers: tasks, with the parameters of their handlers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, assert_type

from headrace import App, Context, Draft, JobHandle, JobOptions
from headrace.endpoints.fastapi import InWorker, JobRouter, MadeInWorker, status_router
from headrace.endpoints.starlette import JobRoutes

jobs = App("memory://")
shows = status_router(jobs, public=True, prefix="/jobs", delete="discard", deprecated=False)
router = JobRouter(jobs, prefix="/reports", tags=["reports"], include_in_schema=False, status=shows)
routes = JobRoutes(jobs)


@router.post("/{year}", job=JobOptions(timeout=600), summary="Write a report")
async def report(ctx: Context, title: str, year: int) -> list[str]:
    return [title, str(year)]


@router.get("/plain")
def plain(n: int = 1) -> float:
    return float(n)


@routes.post("/{year}")
async def other(ctx: Context, year: int) -> str:
    return str(year)


class Session: ...


def session() -> Iterator[Session]:
    yield Session()


@dataclass
class Tools(MadeInWorker):
    db: Annotated[Session, InWorker(session)]


@router.post("/made")
async def made(ctx: Context, tools: Tools, title: str, year: int = 2026) -> str:
    return title


@router.put("/made")
def made_plainly(tools: Tools, title: str) -> int:
    return len(title)


@routes.post("/made")
async def made_there(tools: Tools, title: str) -> str:
    return title


@router.post("/any")
def of_anything(ctx: Context, thing: object) -> str:
    return str(thing)


async def use() -> None:
    assert_type(await of_anything.submit(1), JobHandle[str])
    assert_type(await made.submit("tea", year=2026), JobHandle[str])
    assert_type(await made_plainly.submit(title="tea"), JobHandle[int])
    assert_type(await made_there.submit("tea"), JobHandle[str])
    assert_type(await report.submit("tea", year=2026), JobHandle[list[str]])
    assert_type(report.draft("tea", 2026), Draft[list[str]])
    assert_type(await report("tea", 2026), list[str])
    assert_type(plain(2), float)
    assert_type(await other.submit(2026), JobHandle[str])
