"""The responses that clients get: each is made by a method of ``Answers``, which a service may replace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from headrace.core.attempt import Attempt
from headrace.core.codec.record import Record
from headrace.core.job import Job
from headrace.core.words import HEADRACE, Vocabulary, worded
from headrace.endpoints.documents import JobDocument, attempts_of, document_of
from headrace.endpoints.errors import coded, failure_of
from headrace.http.entity_tags import tagged
from headrace.http.problems import Problem

__all__ = ["Answers", "EndpointResponse"]

_encode = msgspec.json.Encoder().encode

JSON = "application/json"
PROBLEM = "application/problem+json"


class EndpointResponse(msgspec.Struct, frozen=True):
    """A response, which every framework sends in its own way."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    media: str = JSON


class Answers:
    """Makes the responses: ``class MyAnswers(Answers)`` with other methods, and ``JobRouter(answers=MyAnswers())``."""

    words: Vocabulary = HEADRACE
    """The words for statuses: those of the router, or those that a request asks for."""

    history: Sequence[Attempt] = ()
    """The attempts of the job to be shown that have ended."""

    def __init__(self, *, tracebacks: bool = False) -> None:
        """``tracebacks``: show those of failed jobs, for services without outside access."""
        self.tracebacks = tracebacks

    def in_words(self, words: Vocabulary) -> Self:
        """Return the same, in these words."""
        if words is self.words:
            return self
        made = copy(self)
        made.words = words
        return made

    def with_history(self, history: Sequence[Attempt]) -> Self:
        """Return the same, for a job with these attempts; no argument of ``shown``, which a service may replace."""
        made = copy(self)
        made.history = history
        return made

    def document(self, job: Job, address: str | None) -> Any:
        """Return the job as clients see it, as a value with a JSON form; ``address``: of its status page."""
        return document_of(job, address, tracebacks=self.tracebacks)

    def accepted(self, job: Job, address: str | None, retry_after: int, headers: Mapping[str, str]) -> EndpointResponse:
        """Respond that the job goes on (202), with its address and when to come back."""
        more = {"Retry-After": str(retry_after)} | ({} if address is None else {"Location": address})
        return EndpointResponse(202, self._text(job, address), {**headers, **more})

    def completed(self, job: Job, address: str | None, headers: Mapping[str, str]) -> EndpointResponse:
        """Respond with the result of a completed job (200)."""
        return EndpointResponse(200, (job.result_text or "null").encode(), headers)

    def unsuccessful(self, job: Job, address: str | None, headers: Mapping[str, str]) -> EndpointResponse:
        """Respond with the reason why an ended job has no result, with the error's own status."""
        return self.problem(failure_of(job, self.tracebacks), headers)

    def shown(self, job: Job, address: str | None, status: int = 200) -> EndpointResponse:
        """Respond with the job as it is now, and with its ``history``."""
        return EndpointResponse(status, self._text(job, address, self.history), tagged(job, self.words))

    def with_attempts(self, job: Job, address: str | None, history: Sequence[Attempt]) -> Any:
        """Return the document of the job, with its attempts if it is a ``JobDocument``."""
        document = self.document(job, address)
        if not isinstance(document, JobDocument):
            return document
        return replace(document, attempts=attempts_of(job, history, tracebacks=self.tracebacks))

    def unchanged(self, job: Job) -> EndpointResponse:
        """Respond that the client's copy of the job is current (304)."""
        return EndpointResponse(304, b"", tagged(job, self.words))

    def problem(self, problem: Problem, headers: Mapping[str, str] | None = None) -> EndpointResponse:
        """Respond with a problem (RFC 9457)."""
        return EndpointResponse(
            problem.status, _encode(coded(problem.details)), {**(headers or {}), **problem.headers}, PROBLEM
        )

    def _text(self, job: Job, address: str | None, history: Sequence[Attempt] = ()) -> bytes:
        document = worded(self.with_attempts(job, address, history), self.words)
        return _encode(document.to_dict() if isinstance(document, Record) and not _is_plain(document) else document)


def _is_plain(document: Record) -> bool:
    """Return whether the encoder writes the same as ``to_dict`` returns."""
    return type(document).to_dict is Record.to_dict
