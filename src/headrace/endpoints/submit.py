"""From a request to a job, and to the response: its result if it ends soon, else its address."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.client.draft import Draft
from headrace.client.handle import JobHandle
from headrace.client.options import check_options
from headrace.client.task import Task
from headrace.core.defaults import MAX_ENDPOINT_WAIT_SECONDS
from headrace.core.job import Job
from headrace.core.status import Status
from headrace.core.times import Seconds, seconds
from headrace.core.words import Words, vocabulary_of
from headrace.endpoints.documents import Errors, shows
from headrace.endpoints.request import (
    HEADERS,
    EndpointRequest,
    Preference,
    checked_headers,
    kept_headers,
    kept_query,
    key_of,
    patiently,
    preference_of,
)
from headrace.endpoints.responses import Answers, EndpointResponse
from headrace.endpoints.retry_after import Estimates
from headrace.errors import ConfigError, InvalidPayload
from headrace.http.problems import Problem, problem_of

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["BeforeSubmit", "Misused", "Submitting", "as_problem"]


BeforeSubmit = Callable[[Any, Draft[Any]], Any]
"""Called with the framework's own request and the draft of the job, before the job is stored. If it returns something
other than None, that is the response, and nothing is stored."""


class Submitting:
    """Submits for all routes of one router."""

    def __init__(
        self,
        app: App,
        *,
        headers: Sequence[str] = HEADERS,
        shared_keys: bool = False,
        wait: Seconds = 0.0,
        longest_wait: Seconds = 30.0,
        before_submit: BeforeSubmit | None = None,
        answers: Answers | None = None,
        errors: Errors = "shown",
        words: Words = "headrace",
    ) -> None:
        """
        :raises ConfigError: naming the argument
        """
        self.app, self._shows = app, shows(errors)
        self.answers = (answers or Answers()).in_words(vocabulary_of(words))
        self.headers = checked_headers(headers)
        self._shared, self._before = shared_keys, before_submit
        self._wait, self._longest = seconds(wait, "wait"), seconds(longest_wait, "longest_wait")
        if self._longest > MAX_ENDPOINT_WAIT_SECONDS or self._wait > self._longest:
            raise ConfigError(
                f"wait must be at most longest_wait, and that at most {MAX_ENDPOINT_WAIT_SECONDS:g} s:"
                " use the status page"
            )
        self._estimates = Estimates(app)

    async def answer(
        self,
        task: Task[Any, Any],
        arguments: Callable[[], Mapping[str, Any]],
        asked: EndpointRequest,
        request: Any = None,
        depends: Collection[str] = (),
    ) -> Any:
        """Store the job of a request; return an ``EndpointResponse``, or what ``before_submit`` returned for
        ``request``.

        ``depends``: the arguments that dependencies of the service returned.

        :raises Misused: one of those has no JSON form
        :raises HungUp: the client is gone; the job goes on
        """
        try:
            prefers = preference_of(asked.all("prefer"))
            draft = self._draft(task, arguments(), asked)
            if self._before is not None:
                said = self._before(request, draft)
                said = await said if isinstance(said, Awaitable) else said
                if said is not None:
                    return said
            handle = await draft.submit()
            wait = prefers.seconds(self._wait, self._longest)
            job = await self._ended(handle, wait, asked)
            estimate = self._estimates.retry_after if handle.duplicate or wait > 0 else self._estimates.after_submit
            return await self._answer(job, asked, prefers, estimate)
        except InvalidPayload as error:
            field = (error.field or "").partition(".")[0].partition("[")[0]
            if field in depends:
                remedy = f"have the dependency return JSON, or mark it: {field}: Annotated[..., InWorker(...)]"
                raise Misused(f"{task.name}: {field!r} cannot be stored with the job ({error}): {remedy}") from None
            return self.answers.problem(as_problem(error))
        except Exception as error:
            return self.answers.problem(as_problem(error))

    def _draft(self, task: Task[Any, Any], arguments: Mapping[str, Any], asked: EndpointRequest) -> Draft[Any]:
        options: dict[str, Any] = {
            "headers": kept_headers(asked.headers, self.headers),
            "route": asked.route,
            "query": kept_query(asked.query),
            "customer": asked.identity,
            "request_key": key_of(asked, self._shared),
        }
        said = {name: one for name, one in options.items() if one}
        return task._draft_bound(arguments)._with_checked(check_options(said) if said else said)

    async def _ended(self, handle: JobHandle[Any], wait: float, asked: EndpointRequest) -> Job:
        """Return the job when it has ended, or as it is when the time is up."""
        job = handle.last
        if wait > 0 and (job is None or not job.ended):
            await patiently(asked, handle.ended(timeout=wait))
            job = handle.last
        if job is None or (not job.ended and (wait > 0 or handle.duplicate)):
            job = await handle.refresh()
        return job

    async def _answer(
        self, job: Job, asked: EndpointRequest, prefers: Preference, estimate: Callable[[Job], Awaitable[int]]
    ) -> EndpointResponse:
        address, applied = asked.where(job.id), {**prefers.applied(self._longest), "Vary": "Prefer"}
        waited, job = prefers.seconds(self._wait, self._longest) > 0, self._shows(job)
        if not job.ended or not waited:
            return self.answers.accepted(job, address, await estimate(job), applied)
        if address is not None:
            applied["Content-Location"] = address
        if job.status is Status.COMPLETED:
            return self.answers.completed(job, address, applied)
        return self.answers.unsuccessful(job, address, applied)


def as_problem(error: Exception) -> Problem:
    """Return the problem for an error; raise any other error again, as a fault of the service."""
    problem = None if isinstance(error, Misused) else problem_of(error)
    if problem is None:
        raise error
    return problem


class Misused(ConfigError):
    """A route has options that cannot work, which only its use reveals."""
