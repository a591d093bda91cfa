"""A service of routes that are jobs, to be run by uvicorn, several times on one store: the routes of the tests."""

import asyncio
import os
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException

from headrace import App, Context, JobOptions, Retry
from headrace.endpoints.fastapi import JobRouter, status_router

jobs = App(os.environ["JOBS"])
router = JobRouter(jobs)
HERE = Path(os.environ["HERE"])


@router.post("/work/{n}", job=JobOptions(retry=Retry(max_retries=3, initial=0.01, jitter=False)))
async def work(ctx: Context, n: int) -> dict[str, Any]:
    """Say who runs it; the first attempt of number 13 never ends."""
    with (HERE / f"{n}.{os.getpid()}").open("a") as runs:
        runs.write(f"{ctx.attempt}\n")
    if n == 13 and ctx.attempt == 1:
        await asyncio.Event().wait()
    await asyncio.sleep(0.01)
    return {"n": n, "pid": os.getpid(), "attempt": ctx.attempt}


@router.post("/typed", job=JobOptions(queue="typed"))
def typed(text: str, ids: list[int]) -> int:
    if not ids:
        raise HTTPException(409, "no ids")
    return len(text) + sum(ids)


api = FastAPI(lifespan=jobs.lifespan(worker=os.environ.get("WORKER") == "yes"))
api.include_router(router)
api.include_router(status_router(jobs, public=True), prefix="/jobs")
