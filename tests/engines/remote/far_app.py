"""An App with a task for everything that a worker can do; read by tests, and written where their workers are."""

# A file of its own for workers: no store is named here.
import asyncio
import logging
import os
from collections.abc import AsyncIterator

from headrace import App, Context, Retry

app = App()


@app.task
async def note(n: int, seconds: float) -> int:
    await asyncio.sleep(seconds)
    with open("notes.txt", "a") as file:  # noqa: ASYNC230 - it takes no time
        file.write(f"{n}\n")
    return n


@app.task
async def stream(n: int) -> AsyncIterator[int]:
    for number in range(n):
        yield number


@app.task(retry=Retry(1, backoff=[0.01], jitter=False))
async def stepping(ctx: Context) -> int:
    first = await ctx.step("first", lambda: ctx.attempt)
    if ctx.attempt == 1:
        raise ValueError("once more")
    return first


@app.task
async def parent(n: int) -> int:
    jobs = [await note.submit(number, 0.0) for number in range(n)]
    return sum([await job.result() for job in jobs])


@app.task
async def tell() -> None:
    logging.getLogger("far").warning("a line from far away")


@app.task(max_concurrency=1)
async def alone() -> list[float]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(0.05)
    return [began, loop.time()]


@app.task(run_in="process")
def elsewhere(n: int) -> list[int]:
    return [n * n, os.getpid(), os.getppid()]


@app.task
def blocking(ctx: Context) -> str:
    ctx.progress(50, "half")
    return "done"


@app.task
async def all_done() -> str:
    return "all done"


@app.bulk(size=10, wait=0.05)
async def together(numbers: list[int]) -> list[int]:
    return list(numbers)
