"""A worker behind a hub, over a WebSocket: ``python -m bench.recovering_socket ADDRESS FOLDER``.

It takes jobs of the task ``long`` one after another, and runs each as ``bench.recovering`` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from bench.recovering import wait

__all__ = ["main"]


async def _work(address: str, folder: str) -> None:
    async with connect(address.replace("http", "ws", 1) + "/ws", proxy=None) as connection:
        name = {"worker_id": f"socket-{os.getpid()}"}
        known = await _ask(connection, "register_worker", **name, tasks=["long"], max_concurrent_jobs=1)
        beating = asyncio.create_task(_beat(connection, known["heartbeat_seconds"] / 2))
        try:
            while True:
                job = await _ask(connection, "claim_job", **name, wait=20)
                if job["type"] == "job_assigned":
                    await _ask(connection, "start_job", job_id=job["job_id"])
                    await wait(folder)
                    await _ask(connection, "complete_job", job_id=job["job_id"])
        finally:
            beating.cancel()


async def _ask(connection: ClientConnection, type: str, **fields: Any) -> dict[str, Any]:
    """Send a message, and skip to its answer; there is one question at a time, beside heartbeats."""
    await connection.send(json.dumps({"type": type, "id": type, **fields}))
    while True:
        answer: dict[str, Any] = json.loads(await connection.recv())
        if answer.get("id") == type:
            assert answer["type"] != "error", answer
            return answer


async def _beat(connection: ClientConnection, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await connection.send(json.dumps({"type": "heartbeat"}))


def main(argv: list[str]) -> None:
    """Work until killed."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_work(*argv))


if __name__ == "__main__":
    main(sys.argv[1:])
