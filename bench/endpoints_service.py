"""The service that the bench of endpoints asks: the same route as a job, and as one that only validates and returns."""

import asyncio
import os
import sys
from typing import Annotated

import uvicorn
from fastapi import APIRouter, FastAPI, Header
from pydantic import BaseModel

from headrace import App
from headrace.endpoints.fastapi import JobRouter, status_router
from headrace.hub.running import listen
from headrace.worker.tuning import fast_loop


class Order(BaseModel):
    item: str
    count: int = 1


class Receipt(BaseModel):
    item: str
    year: int
    user: str


jobs = App(os.environ["BENCH_STORE"])
router, returning = JobRouter(jobs), APIRouter()
api = FastAPI(lifespan=jobs.lifespan(worker=os.environ.get("BENCH_WORKER") == "yes"))


@router.post("/orders/{year}")
async def order(order: Order, year: int, x_user: Annotated[str, Header()]) -> Receipt:
    return Receipt(item=order.item, year=year, user=x_user)


@returning.post("/plain/{year}", status_code=202)
async def plain(order: Order, year: int, x_user: Annotated[str, Header()]) -> Receipt:
    return Receipt(item=order.item, year=year, user=x_user)


api.include_router(returning)
api.include_router(router)
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
