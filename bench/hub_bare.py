"""What the hub is compared with: the same route of Starlette on the same server, which only validates and answers."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.hub.api.vocabulary import SubmitBody
from headrace.hub.server.server import listen
from headrace.worker.process.loops import fast_loop

_body = msgspec.json.Decoder(SubmitBody)
_ANSWER: dict[str, Any] = {
    "job_id": "01935c9e-7a3c-7d05-9c8e-2f6b8f0e4a11",
    "status": "queued",
    "position": None,
    "estimated_start": None,
    "created_at": "2026-11-16T17:30:00Z",
    "duplicate": False,
    "replaced": False,
    "warnings": [],
}


async def submit(request: Request) -> Response:
    _body.decode(await request.body())
    return Response(msgspec.json.encode(_ANSWER), 201, media_type="application/json")


def main() -> None:
    listener = listen("127.0.0.1", 0)
    app = Starlette(routes=[Route("/api/jobs", submit, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, http="h11", lifespan="off"))
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(server.serve([listener]))


if __name__ == "__main__":
    main()
