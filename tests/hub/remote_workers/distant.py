"""Workers behind a hub that are processes of their own, for tests that kill and freeze them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

__all__ = ["Distant", "distant"]

PATIENCE = 90.0


class Distant:
    """A worker in a process of its own, which says what the test says."""

    def __init__(self, process: asyncio.subprocess.Process, name: str) -> None:
        self._process, self.name = process, name
        self.job: dict[str, Any] = {}
        """What it was assigned last."""

    async def says(self, type: str, answer: str | None, *, last: bool = False, **fields: Any) -> dict[str, Any]:
        """Send a message; the answer, which is of this type. ``last``: die right after it was sent."""
        assert self._process.stdin is not None
        mark = "!" if last else ""
        document = {"type": type, "worker_id": self.name, **fields}
        self._process.stdin.write(f"{mark}{json.dumps(document)}\n".encode())
        await self._process.stdin.drain()
        return {} if answer is None else await self.hears(answer)

    async def hears(self, *types: str) -> dict[str, Any]:
        """The next message of one of these types."""
        assert self._process.stdout is not None
        heard = []
        async with asyncio.timeout(PATIENCE):
            while line := await self._process.stdout.readline():
                message: dict[str, Any] = json.loads(line)
                if message["type"] in types:
                    return message
                heard.append(message)
                assert message["type"] != "error", message
        raise AssertionError(f"it ended without {types}, having heard {heard}")

    async def about(self, type: str, answer: str | None, *, last: bool = False, **fields: Any) -> dict[str, Any]:
        """Send a message about the job it was assigned."""
        mine = {"job_id": self.job["job_id"], "lease": self.job["lease"]}
        return await self.says(type, answer, last=last, **mine, **fields)

    async def claims(self, **fields: Any) -> dict[str, Any]:
        """Be given a job, however long it takes."""
        while True:
            await self.says("claim_job", None, wait=5, **fields)
            heard = await self.hears("job_assigned", "no_job")
            if heard["type"] == "job_assigned":
                self.job = heard
                return heard

    async def ended(self) -> None:
        """Wait until it has ended of its own accord: it was told to, or the hub hung up."""
        async with asyncio.timeout(PATIENCE):
            await self._process.wait()

    async def leaves(self) -> None:
        """Have it close its socket with a goodbye, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self.ended()

    async def killed(self) -> None:
        """End it without warning, unless it has ended."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def freeze(self) -> None:
        """Stop it in its tracks."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def distant(address: str, name: str) -> AsyncIterator[Distant]:
    """A worker that is connected to the hub; it is killed at the end."""
    place = address.replace("http", "ws", 1) + "/ws"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("line.py")),
        place,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=4 * 2**20,
    )
    worker = Distant(process, name)
    try:
        yield worker
    finally:
        await worker.killed()
