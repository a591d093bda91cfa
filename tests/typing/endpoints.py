"""What routes that are jobs are to the type checkers: tasks, with the parameters of their handlers."""

from __future__ import annotations

from typing import assert_type

from headrace import App, Context, Draft, JobHandle, JobOptions
from headrace.endpoints.fastapi import JobRouter
from headrace.endpoints.starlette import JobRoutes

jobs = App("memory://")
router = JobRouter(jobs, prefix="/reports", tags=["reports"])
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


async def use() -> None:
    assert_type(await report.submit("tea", year=2026), JobHandle[list[str]])
    assert_type(report.draft("tea", 2026), Draft[list[str]])
    assert_type(await report("tea", 2026), list[str])
    assert_type(plain(2), float)
    assert_type(await other.submit(2026), JobHandle[str])
