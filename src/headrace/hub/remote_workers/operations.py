"""The table of messages of workers: operations over HTTP, messages of a socket, scopes and tests are made from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, get_type_hints

import msgspec
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request

from headrace.http.problems import Problem
from headrace.hub.remote_workers import entries, finish, progress, registration
from headrace.hub.remote_workers.held_job import LeaseLost
from headrace.hub.remote_workers.messages import JobLog, LogLineBody
from headrace.hub.remote_workers.peers import Peer
from headrace.hub.server.operation import Bounded, Operation, OperationReply, OperationRequest
from headrace.hub.server.problems import decoded, malformed

__all__ = ["OPERATIONS", "WORK", "Received", "WorkMessage"]


_MAX_WARNINGS = 10
_MAX_SHOWN_CHARACTERS = 64
"""Maximum characters of the name of an unknown field that a warning repeats."""
_document: msgspec.json.Decoder[Mapping[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class Received(msgspec.Struct, frozen=True):
    """A message as it was understood."""

    given: Any
    warnings: tuple[str, ...]
    """What was ignored in it."""

    def answered(self, answer: msgspec.Struct) -> msgspec.Struct:
        """Return the reply with the warnings."""
        return replace(answer, warnings=self.warnings) if self.warnings else answer


@dataclass(frozen=True, kw_only=True)
class WorkMessage:
    """One message of workers: its name, its fields, its reply, and the function that serves it."""

    summary: str
    bounded: Bounded = "leased"
    do: Callable[[Peer, Any], Awaitable[msgspec.Struct]]
    """Its annotations are the types of the message and of its reply."""
    example: Mapping[str, Any]
    answered: Mapping[str, Any]
    refuses: tuple[int, ...] = (404, 409)
    waits: bool = False
    """It may take long: a client that leaves meanwhile is noticed."""

    @property
    def name(self) -> str:
        """Its name in a socket and in a path: that of the function."""
        return str(getattr(self.do, "__name__", ""))

    @cached_property
    def takes(self) -> type[msgspec.Struct]:
        """The type of the message."""
        kind: type[msgspec.Struct] = get_type_hints(self.do)["given"]
        return kind

    def read(self, document: Mapping[str, Any]) -> Received:
        """Return the message of a document, and warnings about fields that it does not have.

        :raises Problem: 400, it is malformed
        """
        kind = self.takes
        known, warnings = kind.__struct_encode_fields__, list[str]()
        if not document.keys() <= set(known):
            warnings += [_ignored(name, self.name, known) for name in document if name not in known]
        if kind is JobLog and isinstance(lines := document.get("lines"), list):
            of_line = LogLineBody.__struct_encode_fields__
            strange = {name for line in lines if isinstance(line, dict) for name in line} - set(of_line)
            warnings += [_ignored(name, "a line", of_line) for name in strange]
        try:
            given = msgspec.convert(document, kind)
        except msgspec.ValidationError as error:
            raise malformed(error, kind) from None
        return Received(given, tuple(sorted(warnings)[:_MAX_WARNINGS]))

    @property
    def gives(self) -> Any:
        """The type of the reply."""
        return get_type_hints(self.do)["return"]


def _ignored(name: str, whole: str, known: Sequence[str]) -> str:
    near = get_close_matches(name[:_MAX_SHOWN_CHARACTERS], known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{name[:_MAX_SHOWN_CHARACTERS]!r} is no field of {whole}, and was ignored{hint}"


_ID = "0198c5a4-7b1e-7cc2-8d4f-5b6a7c8d9e0f"
_LEASE = (
    "hrl.5f2c9a10.AZjFpHsefMKNT1tqfI2eDwAAAAAAAAABAZjFpHsefMKNT1tqfI2eEA.w1Yd0vJqQm5m2cUe8Zb8n0qk1nq3JdFhYt8q9oUuX4s"
)
_TOKEN = "hrw.5f2c9a10.AZjFpHsefMKNT1tqfI2eEA.w1Yd0vJqQm5m2cUe8Zb8n0qk1nq3JdFhYt8q9oUuX4s"
_AT = "2026-11-16T17:30:00Z"
_CAN = {
    "services": ["comfyui", "a1111"],
    "components": ["text-to-image-xl", "upscaling"],
    "hardware": {"gpu_memory_gb": 16, "gpu_model": "RTX 4090"},
}
_OF_JOB = {"lease": _LEASE}

WORK: tuple[WorkMessage, ...] = (
    WorkMessage(
        summary="Make a worker known, or know it again by its token",
        bounded="offered",
        do=registration.register_worker,
        example={"worker_id": "worker-gpu-01", "capabilities": _CAN, "max_concurrent_jobs": 2},
        answered={
            "type": "worker_registered",
            "worker_id": "worker-gpu-01",
            "worker": _ID,
            "heartbeat_seconds": 10.0,
            "lease_seconds": 60.0,
            "token": _TOKEN,
        },
        refuses=(409, 410),
    ),
    WorkMessage(
        summary="Ask for a job, and wait for one if asked to",
        bounded="offered",
        do=registration.claim_job,
        example={
            "worker_id": "worker-gpu-01",
            "capabilities": _CAN,
            "max_concurrent_jobs": 2,
            "current_load": 0.3,
        },
        answered={
            "type": "job_assigned",
            "job_id": _ID,
            "job_type": "text_to_image",
            "priority": 75,
            "payload": {"prompt": "a landscape with mountains", "steps": 30},
            "requirements": {"service_type": "comfyui", "timeout_minutes": 15.0},
            "claim_timeout": 30000,
            "estimated_processing_time": 45.0,
            "attempt": 1,
            "lease": _LEASE,
            "queue": "default",
            "customer_id": "customer-123",
            "timeout": 900.0,
            "heartbeat": 60.0,
        },
        refuses=(409, 410),
        waits=True,
    ),
    WorkMessage(
        summary="Take a job that was assigned",
        do=progress.accept_job,
        example=_OF_JOB,
        answered={"type": "job_accepted", "job_id": _ID, "start_by": _AT},
    ),
    WorkMessage(
        summary="Take a job, and have 30 s more to start it",
        do=progress.prepare_job,
        example=_OF_JOB,
        answered={"type": "job_accepted", "job_id": _ID, "start_by": _AT},
    ),
    WorkMessage(
        summary="Say that the work begins",
        do=progress.start_job,
        example=_OF_JOB,
        answered={"type": "job_started", "job_id": _ID, "attempt": 1, "timeout_at": _AT},
    ),
    WorkMessage(
        summary="Say how far a job is, and hear whether it must stop",
        do=progress.update_job_progress,
        example={
            **_OF_JOB,
            "status": "in_progress",
            "progress": 45,
            "message": "Generating image - step 14/30",
            "current_step": "sampling",
            "estimated_completion": _AT,
            "connector_details": {"service": "comfyui", "connected": True, "queue_position": 0},
        },
        answered={"type": "progress_acknowledged", "job_id": _ID, "cancel": False, "reason": None},
    ),
    WorkMessage(
        summary="Add lines to the log of a job",
        do=entries.job_log,
        example={**_OF_JOB, "first": 1, "lines": [{"level": "INFO", "message": "model loaded"}]},
        answered={"type": "log_acknowledged", "job_id": _ID, "next": 2, "dropped": 0},
    ),
    WorkMessage(
        summary="Add items to the stream of a job",
        do=entries.job_items,
        example={**_OF_JOB, "first": 1, "items": [{"image": "1.png"}, {"image": "2.png"}]},
        answered={"type": "items_acknowledged", "job_id": _ID, "next": 3},
        refuses=(404, 409, 422),
    ),
    WorkMessage(
        summary="Ask what a durable step came to, or keep it",
        do=entries.job_step,
        example={**_OF_JOB, "name": "download", "result": {"file": "model.bin"}},
        answered={
            "type": "step_result",
            "job_id": _ID,
            "name": "download",
            "found": True,
            "result": {"file": "model.bin"},
        },
        refuses=(404, 409, 422),
    ),
    WorkMessage(
        summary="Submit a child of a job",
        do=entries.submit_child,
        example={**_OF_JOB, "child": {"task": "resize", "payload": {"image": "cat.png"}}, "number": 0},
        answered={
            "type": "child_submitted",
            "job_id": _ID,
            "child_id": "0198c5a4-7b1e-7cc2-8d4f-5b6a7c8d9e10",
            "status": "queued",
            "duplicate": False,
        },
        refuses=(404, 409, 410, 422),
    ),
    WorkMessage(
        summary="Complete a job",
        do=finish.complete_job,
        example={**_OF_JOB, "result": {"success": True, "output_files": ["image.png"]}, "processing_time": 67.5},
        answered={"type": "job_completed", "job_id": _ID, "status": "completed"},
        refuses=(404, 409, 422),
    ),
    WorkMessage(
        summary="Say that a job failed, and whether it is worth another attempt",
        do=finish.fail_job,
        example={
            **_OF_JOB,
            "error": "Service connection timeout",
            "retry": True,
            "error_details": {"error_type": "ServiceTimeoutError", "connector": "comfyui"},
            "processing_time": 120.0,
        },
        answered={"type": "job_failed", "job_id": _ID, "status": "retrying", "retry_at": _AT, "reason": None},
    ),
    WorkMessage(
        summary="Have a job wait, uncharged",
        do=finish.snooze_job,
        example={**_OF_JOB, "delay": 60},
        answered={"type": "job_snoozed", "job_id": _ID, "status": "scheduled", "available_at": _AT},
    ),
    WorkMessage(
        summary="Give a job back, uncharged",
        do=finish.release_job,
        example=_OF_JOB,
        answered={"type": "job_released", "job_id": _ID, "status": "queued", "reason": None},
    ),
    WorkMessage(
        summary="Show that a worker lives, and hear what it must stop",
        bounded="offered",
        do=registration.heartbeat,
        example={"token": _TOKEN, "held": [_ID], "load": 0.3},
        answered={
            "type": "heartbeat_acknowledged",
            "next_heartbeat_expected": _AT,
            "cancel": [],
            "lost": [],
            "registered": True,
        },
        refuses=(409, 410),
    ),
)
"""All messages of workers: over a socket in a message of this name, over HTTP to a path of this name."""


def _operation(message: WorkMessage) -> Operation:
    return Operation(
        name=message.name,
        method="POST",
        path=f"/api/work/{message.name}",
        summary=message.summary,
        scope="work",
        bounded=message.bounded,
        do=lambda ask: _asked(ask, message),
        body=message.takes,
        decode=lambda data: message.read(decoded(_document, data)),
        gives={200: message.gives},
        refuses=message.refuses,
        example=dict(message.example),
        answered=dict(message.answered),
    )


async def _asked(ask: OperationRequest, message: WorkMessage) -> OperationReply:
    """Serve a message that came as a request."""
    peer = Peer(ask.hub, ask.caller)
    forget: Callable[[], None] | None = None
    leaving: asyncio.Task[None] | None = None
    if message.waits:
        leaving = asyncio.create_task(_leave(ask.request, peer))
        forget = ask.hub.authenticator.on_revoked(lambda key: peer.leave() if key == ask.caller.key else None)
    try:
        answer = await message.do(peer, ask.body.given)
    except LeaseLost as stale:
        raise Problem(409, "stale-job", "The job is no longer yours", stale.detail, job_id=str(stale.job)) from None
    finally:
        if leaving is not None:
            leaving.cancel()
        if forget is not None:
            forget()
    revoked = message.waits and not ask.hub.authenticator.knows(ask.caller)
    if revoked or peer.gone:
        await peer.undelivered(answer)
    if revoked:
        raise Problem(401, "key", "A key is needed", "the key was revoked while the request waited")
    if peer.gone:
        raise ClientDisconnect
    return OperationReply(ask.body.answered(answer))


async def _leave(request: Request, peer: Peer) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    peer.leave()


OPERATIONS = tuple(_operation(message) for message in WORK)
