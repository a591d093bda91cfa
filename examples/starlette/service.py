"""A service of Starlette whose route is a job.

pip install "headrace[starlette]" uvicorn
uvicorn service:web --timeout-graceful-shutdown 5

curl -i localhost:8000/orders/tea --json '{"item": "green", "count": 3}'
curl localhost:8000/orders/tea --json '{"item": "green", "count": 3}' -H "Prefer: wait=10"
"""

import asyncio

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Mount

from headrace import App, Context, JobOptions, Retry
from headrace.endpoints.starlette import JobRoutes, status_routes

PRICES = {"green": 4.5, "black": 3.25}


class Order(msgspec.Struct):
    item: str
    count: int = 1


class Receipt(msgspec.Struct):
    shop: str
    total: float


jobs = App("sqlite:///jobs.db")
orders = JobRoutes(jobs)


@orders.post("/orders/{shop}", job=JobOptions(timeout=60, retry=Retry(max_retries=2)))
async def order(ctx: Context, shop: str, order: Order) -> Receipt:
    """Pack an order; one of something that nobody sells is a 404."""
    if order.item not in PRICES:
        raise HTTPException(404, f"{shop} has no {order.item}")
    for packed in range(order.count):
        ctx.progress(100 * packed / order.count, f"{packed} packed")
        await asyncio.sleep(0.05)
    return Receipt(shop, order.count * PRICES[order.item])


web = Starlette(
    routes=[*orders, Mount("/jobs", routes=status_routes(jobs, public=True))],
    lifespan=jobs.lifespan(worker=True),
)
