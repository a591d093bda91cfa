"""The service that the bench of endpoints asks: a route that is a job, or the same that only validates and returns."""

import asyncio
import os
import sys
from typing import Annotated

import uvicorn
from fastapi import APIRouter, FastAPI, Header
from pydantic import BaseModel

from headrace import App
from headrace.endpoints.fastapi import JobRouter, status_router
from headrace.hub.server.server import listen
from headrace.worker.process.loops import fast_loop


class Order(BaseModel):
    item: str
    count: int = 1


class Receipt(BaseModel):
    item: str
    year: int
    user: str


jobs = App(os.environ["BENCH_STORE"])
router, returning = JobRouter(jobs), APIRouter()


@router.post("/{year}")
async def order(order: Order, year: int, x_user: Annotated[str, Header()]) -> Receipt:
    return Receipt(item=order.item, year=year, user=x_user)


@returning.post("/{year}", status_code=202)
async def plain(order: Order, year: int, x_user: Annotated[str, Header()]) -> Receipt:
    return Receipt(item=order.item, year=year, user=x_user)


# One of the two, and first: FastAPI looks for a route in their order, which takes it longer for each that comes before.
if os.environ["BENCH_ROUTE"] == "plain":
    api = FastAPI()
    api.include_router(returning, prefix="/orders")
else:
    api = FastAPI(lifespan=jobs.lifespan(worker=os.environ.get("BENCH_WORKER") == "yes"))
    api.include_router(router, prefix="/orders")
    api.include_router(status_router(jobs, public=True), prefix="/jobs")


def main() -> None:
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(api, log_config=None, access_log=False, lifespan="on"))
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(server.serve([listener]))


if __name__ == "__main__":
    main()
