"""A hub with many streams of events open: how soon each hears of its job, and what workers notice.

    python -m bench.live [URL] [--streams N] [--jobs N]
    python -m bench.live [URL] [--streams N] --drain JOBS

One process is the hub, one the worker, one opens the streams. Each stream follows a job of its own; when that has
ended, another job is submitted and followed, so that there are always as many. The worker takes jobs as fast as 200 a
second. With ``--drain``, streams follow jobs that wait for their time, while a worker does others as fast as it can.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from uuid import UUID

from headrace import App

RATE, TAKES = 200, 0.05
"""Jobs a second, and how many seconds each takes."""

app = App(os.environ.get("HEADRACE_URL", "memory://"))


@app.task(queue="paced")
async def paced() -> None:
    await asyncio.sleep(TAKES)


@app.task(queue="drained")
async def nothing() -> None:
    pass


@app.task(queue="later")
async def later() -> None:
    pass


@asynccontextmanager
async def program(*words: str, url: str, until: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
    """A command of headrace, once it has said this."""
    environment = {**os.environ, "HEADRACE_URL": url}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", *words, env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    said = b""
    while until.encode() not in said:
        line = await process.stderr.readline()
        if not line:
            raise RuntimeError(said.decode())
        said += line
    draining = asyncio.create_task(process.stderr.read())
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()
        await draining


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


class Heard:
    """When streams heard what happened when."""

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.ends: list[float] = []
        self.silent = 0

    def tell(self) -> None:
        for name, seconds in (("start", self.starts), ("end", self.ends)):
            ordered = sorted(seconds)
            middle, most = (1000 * ordered[int(part * (len(ordered) - 1))] for part in (0.5, 0.99))
            print(f"{name}: {len(ordered)} heard, half within {middle:.0f} ms, 99 of 100 within {most:.0f} ms")
        if self.silent:
            print(f"{self.silent} streams ended without having heard both")


async def follow(port: int, id: UUID, heard: Heard | None, opened: asyncio.Event) -> None:
    """Read the events of one job to their end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        writer.write(f"GET /api/jobs/{id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        name, started, ended = b"", False, False
        async for line in reader:
            if line.startswith(b"event: "):
                name = line[7:].strip()
            elif line.startswith(b"data: ") and name == b"snapshot":
                opened.set()
                started = json.loads(line[6:])["job"]["status"] != "queued"  # it came too late to hear of it
            elif line.startswith(b"data: ") and name == b"status" and heard is not None:
                now, told = time.time(), json.loads(line[6:])
                if not started and told["status"] in ("accepted", "running"):
                    started = True
                    heard.starts.append(now - datetime.fromisoformat(told["at"]).timestamp())
                if told["ended"]:
                    ended = True
                    heard.ends.append(now - datetime.fromisoformat(told["at"]).timestamp())
        if heard is not None and not (started and ended):
            heard.silent += 1
    finally:
        writer.close()


async def hear(url: str, port: int, streams: int, jobs: int, hub: asyncio.subprocess.Process) -> None:
    heard, left = Heard(), jobs

    async def one() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            job = await paced.submit()
            await follow(port, job.id, heard, openings.get(job.id) or asyncio.Event())

    openings: dict[UUID, asyncio.Event] = {}
    first = await paced.map([() for _ in range(streams)])
    waiting = []
    for job in first:
        openings[job.id] = asyncio.Event()
        waiting.append(asyncio.create_task(follow(port, job.id, heard, openings[job.id])))
    await asyncio.gather(*(one.wait() for one in openings.values()))
    began, spent = time.monotonic(), processor(hub)
    words = ("worker", "bench.live:app", "--queues", "paced", "--concurrency", str(round(RATE * TAKES)))
    async with program(*words, url=url):

        async def then(task: asyncio.Task[None]) -> None:
            await task
            await one()

        await asyncio.gather(*(then(task) for task in waiting))
    took = time.monotonic() - began
    print(f"{streams} streams, {streams + jobs} jobs in {took:.1f} s ({(streams + jobs) / took:.0f} a second)")
    print(f"the hub had a processor for {100 * (processor(hub) - spent) / took:.0f} % of the time")
    heard.tell()


async def left_at(most: float) -> int:
    """How many jobs are left, once they are so few."""
    while True:
        left = await app.jobs.count(queue="drained", status="queued")
        if left <= most:
            return left
        await asyncio.sleep(0.02)


def processor(process: asyncio.subprocess.Process) -> float:
    """How many seconds a process has had a processor."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


async def drain(url: str, jobs: int, hub: asyncio.subprocess.Process) -> str:
    """How many jobs a second one worker does, and what that costs it and the hub."""
    await nothing.map([() for _ in range(jobs)])
    words = ("worker", "bench.live:app", "--queues", "drained", "--concurrency", "10")
    async with program(*words, url=url) as worker:
        before = await left_at(0.95 * jobs)
        began = time.monotonic()
        spent = processor(worker), processor(hub)
        done = before - await left_at(0.02 * jobs)
        took = time.monotonic() - began
        worked, heard = (1e6 * (processor(one) - was) / done for one, was in zip((worker, hub), spent, strict=True))
        costs = f"each costs the worker {worked:.1f} µs of a processor, the hub {heard:.1f}"
        return f"{done / took:.0f} jobs a second; {costs}"


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url", nargs="?")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--drain", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{Path(folder)}/jobs.db"
        app._override["url"] = url
        port = free_port()
        async with app, program("hub", "bench.live:app", "--port", str(port), url=url, until="http") as hub:
            if not given.drain:
                await hear(url, port, given.streams, given.jobs, hub)
                return
            waiting = await later._with_options({"delay": 3600}).map([() for _ in range(given.streams)])
            for _ in range(3):
                print(f"without streams: {await drain(url, given.drain, hub)}")
                openings = [asyncio.Event() for _ in waiting]
                tasks = [
                    asyncio.create_task(follow(port, job.id, None, opened))
                    for job, opened in zip(waiting, openings, strict=True)
                ]
                await asyncio.gather(*(one.wait() for one in openings))
                print(f"with    {len(tasks)} streams: {await drain(url, given.drain, hub)}")
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
