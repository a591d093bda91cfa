"""``python -m bench.remote_load ADDRESS WORKERS``: workers behind a hub, in one process that costs as little as it can.

It says ``ready`` when all are registered, begins when it is told a number of jobs, and says what came of it when these
are completed.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from functools import partial
from typing import Any, cast

from bench.hub_load import upgrade, where
from headrace.worker.process.loops import fast_loop

PATIENCE = 300.0
WAIT = 20
"""Seconds that a claim waits for a job."""
TEXT, PING, PONG = 1, 9, 10
MASK = b"\0\0\0\0"


def frame(document: dict[str, Any]) -> bytes:
    """A message as a client's frame; its mask is zero, so that nothing has to be masked."""
    data = json.dumps(document).encode()
    size = len(data)
    head = bytes([0x80 | TEXT, 0x80 | size]) if size < 126 else bytes([0x80 | TEXT, 0xFE]) + size.to_bytes(2, "big")
    return head + MASK + data


class Crowd:
    """All workers, and what they have done together."""

    def __init__(self) -> None:
        self.left = self.open = 0
        """Jobs that are not completed yet, and those of them that nobody has claimed."""
        self.claims, self.ends = list[float](), list[float]()
        self.registered = 0
        self.ready, self.over = asyncio.Event(), asyncio.Event()
        self.failed: str | None = None

    def done(self) -> None:
        """One more is completed."""
        self.left -= 1
        if self.left <= 0:
            self.over.set()

    def fail(self, why: str) -> None:
        """Give up."""
        self.failed = self.failed or why
        self.ready.set()
        self.over.set()


class Worker(asyncio.Protocol):
    """Claims a job, completes it, and claims the next."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        self._crowd, self._name = crowd, name
        self._got, self._open, self._asked_at = bytearray(), False, 0.0
        self._transport: asyncio.Transport | None = None
        self._claim = frame({"type": "claim_job", "worker_id": name, "wait": WAIT})

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # that of uvloop is none by name
        self._transport.write(upgrade("/ws"))

    def data_received(self, data: bytes) -> None:
        got = self._got
        got += data
        if not self._open:
            end = got.find(b"\r\n\r\n")
            if end < 0:
                return
            del got[: end + 4]
            self._open = True
            self._send(frame({"type": "register_worker", "worker_id": self._name, "tasks": ["noop"]}))
        while (message := self._next()) is not None:
            self._hear(message)

    def _next(self) -> bytes | None:
        """The next whole frame, if it is there: those of a server are not masked."""
        got = self._got
        if len(got) < 2:
            return None
        size, start = got[1], 2
        if size == 126:
            size, start = int.from_bytes(got[2:4], "big"), 4
        elif size == 127:
            size, start = int.from_bytes(got[2:10], "big"), 10
        if len(got) < start + size:
            return None
        message = bytes(got[start : start + size])
        kind = got[0] & 0x0F
        del got[: start + size]
        if kind == PING:
            self._send(bytes([0x80 | PONG, 0x80 | size]) + MASK + message)
        return message if kind == TEXT else b""

    def _hear(self, message: bytes) -> None:
        crowd = self._crowd
        if b'"job_assigned"' in message[:40]:
            crowd.claims.append(time.perf_counter() - self._asked_at)
            job = json.loads(message)
            self._asked_at = time.perf_counter()
            self._send(
                frame({"type": "complete_job", "job_id": job["job_id"], "worker_id": self._name, "result": None})
            )
        elif b'"job_completed"' in message[:40]:
            crowd.ends.append(time.perf_counter() - self._asked_at)
            crowd.done()
            self.claim()
        elif b'"no_job"' in message[:40]:
            crowd.open += 1
            self.claim()
        elif b'"worker_registered"' in message[:40]:
            crowd.registered += 1
            crowd.ready.set()
        elif b'"error"' in message[:40] or b'"stale_job"' in message[:40]:
            crowd.fail(message.decode())

    def claim(self) -> None:
        """Ask for a job, if there is one that nobody has asked for."""
        if self._crowd.open > 0:
            self._crowd.open -= 1
            self._asked_at = time.perf_counter()
            self._send(self._claim)

    def _send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._crowd.over.is_set():
            self._crowd.fail(f"the hub hung up: {exc}")


async def main(address: str, size: int) -> None:
    """Connect all, then work whenever told to."""
    crowd, loop = Crowd(), asyncio.get_running_loop()
    workers = list[Worker]()
    async with asyncio.timeout(PATIENCE):
        for number in range(size):
            made = partial(Worker, crowd, f"bench-{number}")
            _, worker = await loop.create_connection(made, *where(address))
            workers.append(worker)
        while crowd.registered < size and crowd.failed is None:
            await crowd.ready.wait()
            crowd.ready.clear()
    _say({"event": "ready", "failed": crowd.failed})
    while line := await asyncio.to_thread(sys.stdin.readline):
        crowd.left = crowd.open = int(line)
        crowd.claims, crowd.ends = [], []
        crowd.over.clear()
        began, before = time.perf_counter(), _busy()
        for worker in workers:
            worker.claim()
        async with asyncio.timeout(PATIENCE):
            await crowd.over.wait()
        spent = {"seconds": time.perf_counter() - began, "own_cpu": _busy() - before}
        _say({"event": "done", "failed": crowd.failed, "claims": crowd.claims, "ends": crowd.ends, **spent})
    crowd.over.set()


def _busy() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(main(sys.argv[1], int(sys.argv[2])))
