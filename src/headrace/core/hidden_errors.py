"""Errors hidden from clients: what a client sees instead, and the reference by which an operator finds them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.attempt import Attempt, ErrorInfo, History
from headrace.core.job import Job
from headrace.core.stats.failures import FailureGroup
from headrace.core.updates import Update
from headrace.core.webhooks.delivery import TASK

__all__ = [
    "NAME",
    "hidden_error",
    "hidden_group",
    "hidden_history",
    "hidden_job",
    "hidden_message",
    "hidden_news",
    "hidden_payload",
]

NAME = "Error"
"""The type of every error that is shown without its own name."""


def hidden_error(error: ErrorInfo, id: object, attempt: object, *, meant: bool = False) -> ErrorInfo:
    """Return what a client sees of an error of this attempt: a reference for the operator, and its HTTP status.

    ``meant``: an error with a status that blames the request (4xx) was written for the client, and stays; its traceback
    does not.
    """
    details = error.details or {}
    status = details.get("status")
    if meant and isinstance(status, int) and 400 <= status < 500:
        return ErrorInfo(
            error.type, error.message, None, {name: details[name] for name in ("status", "data") if name in details}
        )
    reference = f"{id}/{attempt}"
    told: dict[str, Any] = {"reference": reference}
    if meant and isinstance(status, int):
        told["status"] = status
    return ErrorInfo(NAME, f"the operator can say more; the reference is {reference}", None, told)


def hidden_job(job: Job, *, meant: bool = False) -> Job:
    """Return a job as a client sees it: with why a message was not delivered, without the error in the message."""
    if job.task == TASK:
        return replace(job, payload_text=hidden_payload(job.payload_text.encode(errors="replace")).decode())
    return job if job.error is None else replace(job, error=hidden_error(job.error, job.id, job.attempt, meant=meant))


def hidden_payload(data: bytes) -> bytes:
    """Return the payload of a delivery as its customer sees it."""
    payload = msgspec.json.decode(data, type=dict[str, Any])
    return msgspec.json.encode(payload | {"message": hidden_message(payload.get("message"))})


def hidden_message(message: Any) -> Any:
    """Return a message of a webhook as it is sent to a customer."""
    data = message.get("data") if isinstance(message, dict) else None
    if not isinstance(data, dict) or data.get("error") is None:
        return message
    told = hidden_error(ErrorInfo("", ""), data.get("job_id"), data.get("attempt"))
    return message | {"data": data | {"error": {"type": told.type, "message": told.message}}}


def hidden_history(history: History, job: Job, *, meant: bool = False) -> History:
    """Return the attempts of this job as a client sees them."""
    if job.task == TASK:
        return history
    return replace(history, attempts=tuple(_hidden_attempt(one, job.id, meant) for one in history.attempts))


def _hidden_attempt(attempt: Attempt, id: UUID, meant: bool) -> Attempt:
    if attempt.error is None:
        return attempt
    return replace(attempt, error=hidden_error(attempt.error, id, attempt.number, meant=meant))


def hidden_news(news: Update, *, meant: bool = False) -> Update:
    """Return an update of a job as it is sent to a client."""
    return replace(
        news,
        job=hidden_job(news.job, meant=meant),
        before=None if news.before is None else hidden_job(news.before, meant=meant),
        history=hidden_history(news.history, news.job, meant=meant),
    )


def hidden_group(group: FailureGroup) -> FailureGroup:
    """Return a group of equal failures as a client sees it."""
    text = f"the operator can say more; the reference is {group.example}"
    return replace(group, type=NAME, place=None, message=text)
