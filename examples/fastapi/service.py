"""A page with a button: the request becomes a job, a bar follows it, and the result appears.

    pip install "headrace[fastapi]" uvicorn
    uvicorn service:api --timeout-graceful-shutdown 5

Then open http://127.0.0.1:8000. Jobs are in jobs.db, and run in this process. To run them in others, take
``worker=True`` away, and start ``headrace worker service:jobs`` as often as you like.
"""

import asyncio
from pathlib import Path
from typing import Annotated

from fastapi import FastAPI, HTTPException, Query
from fastapi.responses import FileResponse
from pydantic import BaseModel

from headrace import App, Context, JobOptions, Retry
from headrace.endpoints.fastapi import JobRouter, status_router

PAGE = Path(__file__).with_name("page.html")
MOST = 2_000_000


class Primes(BaseModel):
    below: int
    count: int
    largest: int


jobs = App("sqlite:///jobs.db")
router = JobRouter(jobs, prefix="/primes")


@router.post("", job=JobOptions(timeout=60, retry=Retry(max_retries=1)))
async def primes(ctx: Context, below: Annotated[int, Query(ge=3)]) -> Primes:
    """Count the primes below a number."""
    if below > MOST:
        raise HTTPException(422, f"that would take too long: at most {MOST:,}")
    sieve = bytearray([1]) * below
    sieve[:2] = b"\0\0"
    root = int(below**0.5) + 1
    for n in range(2, root):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, below, n)))
        ctx.progress(100 * n / root, f"crossing out multiples of {n}")
        await asyncio.sleep(2 / root)  # others have their turn; and there is something to see
    return Primes(below=below, count=sum(sieve), largest=sieve.rindex(1))


api = FastAPI(title="Primes", lifespan=jobs.lifespan(worker=True))
api.include_router(router)
api.include_router(status_router(jobs, public=True), prefix="/jobs")


@api.get("/", include_in_schema=False)
async def page() -> FileResponse:
    return FileResponse(PAGE)
