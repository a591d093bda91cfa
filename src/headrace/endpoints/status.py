"""The status pages of jobs: show one, wait for it, follow it, get its result, cancel it, retry it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from msgspec.structs import replace

from headrace.core.attempt import ErrorInfo, History
from headrace.core.defaults import MAX_ENDPOINT_WAIT_SECONDS, MAX_NOTE_CHARACTERS
from headrace.core.hidden_errors import hidden_history, hidden_news
from headrace.core.job import Job
from headrace.core.status import Status
from headrace.core.updates import Update
from headrace.core.words import Vocabulary, Words, vocabulary_of
from headrace.endpoints.documents import ErrorDocument, Errors, OnDelete, error_of, shows
from headrace.endpoints.request import EndpointRequest, patiently
from headrace.endpoints.responses import Answers, EndpointResponse
from headrace.endpoints.retry_after import Estimates
from headrace.endpoints.submit import as_problem
from headrace.endpoints.tokens import Tokens
from headrace.errors import ConfigError, shown
from headrace.http.entity_tags import etag, is_known
from headrace.http.job_events import RetryTold, StatusTold, ended_as
from headrace.http.problems import Fault, Problem, absent, id_of
from headrace.http.sse import Teller, Telling, tell_job

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["TOKEN", "WORDS", "StatusPages"]

TOKEN = "token"
"""The query parameter with the token of a public page."""
WORDS = "words"
"""The query parameter that chooses the words for statuses."""


class EndShown(StatusTold, frozen=True, kw_only=True):
    """How a job ended, and its result or error."""

    error: ErrorDocument | None = None
    result: msgspec.Raw | None = None
    finished_at: datetime | None = None


class StatusPages:
    """The pages of one App's jobs."""

    def __init__(
        self,
        app: App,
        *,
        public: bool = False,
        secret: str | bytes | None = None,
        known: bool = False,
        logs: bool = False,
        answers: Answers | None = None,
        errors: Errors = "shown",
        words: Words = "headrace",
        delete: OnDelete = "cancel",
    ) -> None:
        """``known``: callers have an identity, and see only their own jobs. ``logs``: log lines are events, too.
        ``errors``: whether clients see the text of errors. ``words``: those for statuses, if a request asks for none.
        ``delete``: what DELETE does to a job that has ended.

        :raises ConfigError: naming the argument
        """
        if delete not in get_args(OnDelete):
            raise ConfigError(f"delete must be 'cancel' or 'discard', not {shown(delete)}")
        self._discards = delete == "discard"
        self.app, self.answers = app, (answers or Answers()).in_words(vocabulary_of(words))
        self._shows, self._hides = shows(errors), errors == "hidden"
        self._tokens = Tokens(app, secret) if public else None
        self.known, self._logs = known, logs
        """Whether callers see only their own jobs."""
        self._estimates = Estimates(app)

    async def ready(self) -> None:
        """Read the secret, before ``address`` is called; :raises Problem: 503, nothing can be signed now"""
        if self._tokens is not None:
            try:
                await self._tokens.ready()
            except Exception as error:
                raise as_problem(error) from error

    def address(self, path: str, job: Any) -> str:
        """Return the address of a job's page, given its path; a public one contains a token."""
        if self._tokens is None:
            return path
        return f"{path}{'&' if '?' in path else '?'}{TOKEN}={self._tokens.of(job)}"

    # -- reading

    async def show(self, id: str, asked: EndpointRequest, wait: float = 0.0) -> EndpointResponse:
        """Return the job as it is; with ``wait``, as soon as it differs from the client's copy (``If-None-Match``)."""
        return await self._answered(self._show, id, asked, wait)

    async def _show(self, job: Job, asked: EndpointRequest, wait: float) -> EndpointResponse:
        tags, answers = asked.all("if-none-match"), self._answers(asked)
        if wait and not job.ended and (is_known(tags, job, answers.words) or not tags):
            seen = etag(job)
            job = await self._later(job, asked, wait, lambda one: etag(one) != seen)
        if is_known(tags, job, answers.words):
            return answers.unchanged(job)
        return await self._shown(job, asked, answers)

    async def _shown(self, job: Job, asked: EndpointRequest, answers: Answers, status: int = 200) -> EndpointResponse:
        """Return the job with its attempts; those that have ended are read only if there can be any."""
        history = History()
        if job.attempt > (job.status is Status.RUNNING) or job.unstarted_losses:
            history = await self.app.session.engine.records.history(job.id)
            history = hidden_history(history, job, meant=True) if self._hides else history
        return answers.with_history(history.attempts).shown(self._shows(job), asked.where(job.id), status)

    async def result(self, id: str, asked: EndpointRequest, wait: float = 0.0) -> EndpointResponse:
        """Return the result of the job (200), that it goes on (202), or its error, with the error's status."""
        return await self._answered(self._result, id, asked, wait)

    async def _result(self, job: Job, asked: EndpointRequest, wait: float) -> EndpointResponse:
        answers = self._answers(asked)
        if wait and not job.ended:
            job = await self._later(job, asked, wait, lambda one: one.ended)
        address, job = asked.where(job.id), self._shows(job)
        if not job.ended:
            return answers.accepted(job, address, await self._estimates.retry_after(job), {})
        if job.status is Status.COMPLETED:
            return answers.completed(job, address, {})
        return answers.unsuccessful(job, address, {})

    async def _later(self, job: Job, asked: EndpointRequest, wait: float, is_it: Callable[[Job], bool]) -> Job:
        """Return the job as soon as the condition holds, or as it is when the time is up."""
        last = job

        async def follow() -> None:
            nonlocal last
            with suppress(TimeoutError):
                async with (
                    asyncio.timeout(min(wait, MAX_ENDPOINT_WAIT_SECONDS)),
                    aclosing(self.app.jobs.watch(job.id)) as following,
                ):
                    async for last in following:
                        if is_it(last):
                            return

        await patiently(asked, follow())
        return last

    async def events(self, id: str, asked: EndpointRequest, since: str | None = None) -> Telling | EndpointResponse:
        """Return the events of the job until it has ended; ``since``: the id of the last one that was read."""
        try:
            job = await self._job(id, asked)
            telling = await tell_job(self.app, job, since, self._teller(asked))
        except Exception as error:
            return self.answers.problem(as_problem(error))
        return EndpointResponse(204) if telling is None else telling  # all was read: a browser reconnects no more

    def _teller(self, asked: EndpointRequest) -> Teller:
        answers = self._answers(asked)

        def snapshot(update: Update) -> Any:
            address = asked.where(update.job.id)
            return {"job": answers.with_attempts(update.job, address, update.history.attempts)}

        return Teller(snapshot, self._ended, self._seen, self._change, answers.words)

    def _ended(self, job: Job) -> EndShown:
        fields = _fields(ended_as(job))
        return EndShown(**fields | {"error": self._error(fields["error"])})

    def _change(self, document: Any) -> Any:
        if not isinstance(document, RetryTold):
            return document
        return _fields(document) | {"error": self._error(document.error)}

    def _error(self, error: ErrorInfo | None) -> ErrorDocument | None:
        return None if error is None else error_of(error, self.answers.tracebacks)

    def _seen(self, update: Update) -> Update:
        update = update if self._logs else replace(update, logs=())
        return hidden_news(update, meant=True) if self._hides else update

    # -- actions

    async def delete(self, id: str, asked: EndpointRequest) -> EndpointResponse:
        """End the job, or have its worker stop it (202); one that has ended stays as it is (409), or is discarded."""
        return await self._acted(id, asked, lambda job, by: self._delete(job, by, self._answers(asked).words))

    async def _delete(self, job: Job, by: str, words: Vocabulary) -> Job:
        handle = self.app.jobs.handle(job.id)
        if not job.ended:
            return await handle.cancel(by=by)
        if not self._discards:
            status = words.json_word(job.status, job.reason)
            text = f"job {job.id} is {status} already: what has ended cannot be cancelled"
            raise Problem(409, "refused", "The lifecycle refuses this", text, job_id=str(job.id))
        return job if job.status is Status.CANCELLED else await handle.discard(by=by)

    async def retry(self, id: str, asked: EndpointRequest) -> EndpointResponse:
        """Retry a failed or cancelled job, with a new budget."""
        return await self._acted(id, asked, lambda job, by: self.app.jobs.handle(job.id).retry(by=by))

    async def discard(self, id: str, asked: EndpointRequest) -> EndpointResponse:
        """Discard a completed or failed job."""
        return await self._acted(id, asked, lambda job, by: self.app.jobs.handle(job.id).discard(by=by))

    async def _acted(
        self, id: str, asked: EndpointRequest, act: Callable[[Job, str], Awaitable[Job]]
    ) -> EndpointResponse:
        try:
            answers = self._answers(asked)  # wrong words are refused before anything is done
            job = await self._job(id, asked)
            job = await act(job, (asked.identity or "http")[:MAX_NOTE_CHARACTERS])
            return await self._shown(job, asked, answers, 202 if job.held else 200)
        except Exception as error:
            return self.answers.problem(as_problem(error))

    def _answers(self, asked: EndpointRequest) -> Answers:
        """Return the answers in the words that the request asks for; :raises Problem: 400, there are no such words"""
        said = [value for name, value in asked.query if name == WORDS]
        if not said:
            return self.answers
        try:
            return self.answers.in_words(vocabulary_of(said[0]))
        except ConfigError as error:
            faults = [Fault(WORDS, str(error))]
            raise Problem(400, "malformed", "The request cannot be understood", str(error), faults=faults) from None

    # -- access

    async def _answered(self, do: Any, id: str, asked: EndpointRequest, wait: float) -> EndpointResponse:
        try:
            answer: EndpointResponse = await do(await self._job(id, asked), asked, wait)
            return answer
        except Exception as error:
            return self.answers.problem(as_problem(error))

    async def _job(self, text: str, asked: EndpointRequest) -> Job:
        """Return the job with this id, if the caller may see it.

        :raises Problem: 403, the token is missing or wrong; 404 or 410, it is missing, or another caller's
        """
        id = id_of(text)
        if self._tokens is not None:
            given = [value for name, value in asked.query if name == TOKEN]
            if not await self._tokens.admits(id, given[0] if given else None):
                title, detail = "A token is needed", f"ask with the {TOKEN} of the address that the submit answered"
                raise Problem(403, "status-token", title, detail)
        [job] = await self.app.jobs.get_many([id])
        if job is None or (self.known and (asked.identity is None or job.customer != asked.identity)):
            raise absent(id, self.app)
        return job


def _fields(document: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(document, name) for name in document.__struct_fields__}
