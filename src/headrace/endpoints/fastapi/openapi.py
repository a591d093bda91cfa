"""The OpenAPI description of routes that are jobs, and of their status pages."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from headrace.core.codec.record import schema_of
from headrace.endpoints.documents import JobDocument
from headrace.endpoints.errors import FailureDetails
from headrace.worker.handler import Handler

__all__ = ["job_responses", "status_responses", "validation"]

Responses = dict[int | str, dict[str, Any]]


def _job_schema() -> dict[str, Any]:
    """Return the schema of a job; in other words than ours its status is any text."""
    schema = schema_of(JobDocument)
    properties = schema["properties"]
    return {**schema, "properties": {**properties, "status": {"anyOf": [properties["status"], {"type": "string"}]}}}


_JOB = {"application/json": {"schema": _job_schema()}}
_PROBLEM = {"application/problem+json": {"schema": schema_of(FailureDetails)}}


def _header(text: str) -> dict[str, Any]:
    return {"description": text, "schema": {"type": "string"}}


_ACCEPTED: dict[str, Any] = {
    "description": "The job is stored, and goes on; ask at Location, after Retry-After seconds.",
    "content": _JOB,
    "headers": {
        "Location": _header("The status page of the job"),
        "Retry-After": _header("Seconds after which it may have ended"),
        "Preference-Applied": _header("Of `Prefer: wait=N` and `Prefer: respond-async`, what was heeded"),
    },
}


def _problem(description: str) -> dict[str, Any]:
    return {"description": description, "content": _PROBLEM}


def job_responses(returns: Any, handler: Handler) -> Responses:
    """Return the responses of a route that is a job: its result, that it is not done yet, and its problems."""
    done: dict[str, Any] = {"description": "The job has ended within the time of `Prefer: wait=N`: its result."}
    return {
        200: done | _result(returns, handler),
        202: _ACCEPTED,
        400: _problem("The key, or the request, cannot be understood"),
        409: _problem("A live job holds the dedup key; or the job was cancelled while the request waited"),
        413: _problem("The request is too large to be kept"),
        500: _problem("The job failed while the request waited; with its error's own status, if it has one"),
        503: _problem("The store cannot be reached: ask again"),
    }


def _result(returns: Any, handler: Handler) -> dict[str, Any]:
    if returns is inspect.Signature.empty or handler.streams:
        return {"content": {"application/json": {"schema": {"type": "integer"} if handler.streams else {}}}}
    try:
        TypeAdapter(returns).json_schema()
    except Exception:  # pydantic does not know the type, but headrace does
        return {"content": {"application/json": {"schema": _schema(returns)}}}
    return {"model": returns}


def _schema(kind: Any) -> dict[str, Any]:
    try:
        return schema_of(kind)
    except TypeError:
        return {}


def validation(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return additions to the operation: FastAPI's own 422 stays, with headrace's beside it."""
    reused = {"description": "Validation Error; or the key was used for another request", "content": _PROBLEM}
    return {**(extra or {}), "responses": {"422": reused, **((extra or {}).get("responses") or {})}}


_SHOWN: dict[str, Any] = {"description": "The job as it stands", "content": _JOB}
_RESULTS: Responses = {
    200: {"description": "The result", "content": {"application/json": {"schema": {}}}},
    202: _ACCEPTED,
    409: _problem("It was cancelled"),
    500: _problem("It failed; with its error's own status, if it has one"),
}
_STREAM: Responses = {
    200: {
        "description": "Events until the job has ended",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    204: {"description": "All of them were read"},
}
_ACTED: Responses = {200: _SHOWN, 409: _problem("The lifecycle refuses this")}
_BY_NAME: dict[str, Responses] = {
    "job": {200: _SHOWN, 304: {"description": "It is as the client has it"}},
    "job_result": _RESULTS,
    "job_events": _STREAM,
    "cancel_job": {**_ACTED, 202: {"description": "Its worker is asked to stop it", "content": _JOB}},
    "retry_job": _ACTED,
    "discard_job": _ACTED,
}


def status_responses(name: str, public: bool) -> Responses:
    """Return the responses of a status page, by the name of its function."""
    absent: Responses = {
        404: _problem("There is no such job"),
        410: _problem("It was pruned"),
    }
    token: Responses = {403: _problem("The token is missing or wrong")} if public else {}
    return {**_BY_NAME[name], **absent, **token, 503: _problem("The store cannot be reached: ask again")}
