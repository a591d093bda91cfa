"""OpenTelemetry: a span for every submit and every run, in one trace that the job carries; needs the extra ``otel``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from headrace.app import App
from headrace.client.draft import Draft
from headrace.core.attempt import Completed, Ending, Failed, Released, Snoozed, TimedOut
from headrace.core.status import Outcome, Reason
from headrace.errors import ConfigError, MissingExtra
from headrace.worker import log_capture
from headrace.worker.execution.context import Context
from headrace.worker.execution.tracing import SPAN, noted

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.propagators.composite import CompositePropagator
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        Span,
        SpanKind,
        Status,
        StatusCode,
        Tracer,
        TracerProvider,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    raise MissingExtra("headrace.contrib.otel", "opentelemetry-api", "otel") from None

if TYPE_CHECKING:
    from headrace.client.handle import JobHandle
    from headrace.client.submission.middleware import SubmitNext

__all__ = ["instrument"]

_log = logging.getLogger("headrace.tracing")

# Jobs always carry W3C headers, whatever propagator the program uses: every process that runs them can read these.
_W3C = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])

_PRIVATE = frozenset({Reason.INVALID_PAYLOAD, Reason.INVALID_RESULT})
"""Errors about a payload or a result may quote it."""


def instrument(app: App, tracer_provider: TracerProvider | None = None) -> None:
    """Make a span for every submit of this App and for every run of its tasks, from now on.

    ``tracer_provider``: None is the global one, also if that is set later. Log records that are made in a run get the
    ``trace_id`` and ``span_id`` of the span they are made in. A second call changes the provider.

    :raises ConfigError: it is no App
    :raises MissingExtra: when this module is imported without the extra ``otel``
    """
    if not isinstance(app, App):
        raise ConfigError(f"instrument takes the App, as in instrument(app), not {app!r}")
    tracer = trace.get_tracer("headrace", version("headrace"), tracer_provider)
    if isinstance(app._tracing, _Spans):
        app._tracing.tracer = tracer
        return
    spans = _Spans(tracer)
    app._trace(spans)
    app.submit_middleware(spans.submit)
    log_capture.more_labels = _labels


class _Spans:
    """The spans of one App. A failing span never fails a job or a submit: the first failure is logged."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self._warned = False

    def _start(self, name: str, context: contexts.Context | None, *rest: Any) -> Span:
        """Return a new span; if that fails, one that is not recorded, in the same trace."""
        try:
            return self.tracer.start_span(name, context, *rest)
        except Exception as error:
            self._warn("started", error)
            return NonRecordingSpan(trace.get_current_span(context).get_span_context())

    def _end(self, span: Span) -> None:
        try:
            span.end()
        except Exception as error:  # of a processor: the SDK handles errors of exporters
            self._warn("ended", error)

    def _warn(self, what: str, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("tracing: a span could not be %s, and jobs go on without: %r", what, error, exc_info=error)

    # -- submits

    async def submit(self, drafts: Sequence[Draft[Any]], call_next: SubmitNext) -> list[JobHandle[Any]]:
        """Make one span for the call; all of its jobs carry it."""
        if not drafts:
            return await call_next(drafts)
        name, attributes = _described(drafts)
        given = shared([draft.options.get("trace") for draft in drafts])
        context = None if given is None else _W3C.extract(given)
        span = self._start(name, context, SpanKind.PRODUCER, attributes)
        try:
            with trace.use_span(span):
                handles = await call_next(_carrying(drafts, _headers(), given))
                if len(handles) == 1:
                    span.set_attribute("messaging.message.id", str(handles[0].id))
                    if handles[0].duplicate:
                        span.set_attribute("headrace.duplicate", True)
                return handles
        finally:
            self._end(span)

    # -- runs

    async def run(self, ctx: Context, call: Callable[[], Coroutine[Any, Any, Ending]]) -> Ending:
        """Make one span for a run, in the trace of the submit; a retry links to the span of the previous attempt."""
        job = ctx.job
        # Not in a current span of the worker's program: a job belongs to the trace of its submitter.
        context = _W3C.extract(job.trace or {}, contexts.Context())
        attributes = {
            **_about("run", "process", job.queue, job.task),
            "messaging.message.id": str(job.id),
            "headrace.attempt": ctx.attempt,
        }
        if job.worker is not None:
            attributes["messaging.client.id"] = str(job.worker)
        span = self._start(f"run {job.task}", context, SpanKind.CONSUMER, attributes, _links(ctx))
        token = contexts.attach(trace.set_span_in_context(span, context))
        try:
            if headers := _headers():
                ctx._trace = headers
            try:
                ending = await call()
            except asyncio.CancelledError:
                _stopped(span, ctx)
                raise
            return _ended(span, ctx, ending)
        finally:
            contexts.detach(token)
            self._end(span)

    @contextmanager
    def within(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Continue the span of a run that was begun in another process."""
        token = contexts.attach(_W3C.extract(headers, contexts.Context()))
        try:
            yield
        finally:
            contexts.detach(token)


def _headers() -> dict[str, str]:
    """Return the current span, as a job carries it."""
    headers: dict[str, str] = {}
    _W3C.inject(headers)
    return headers if SPAN in headers else {}


def shared(values: Sequence[Any]) -> Any:
    """Return the value, if all are the same."""
    return values[0] if all(value == values[0] for value in values) else None


def _carrying(
    drafts: Sequence[Draft[Any]], headers: dict[str, str], given: Mapping[str, str] | None
) -> Sequence[Draft[Any]]:
    """Return the drafts with these headers as their trace; a draft with a trace of its own keeps it."""
    if not headers:
        return drafts
    alike: dict[int, dict[str, Any]] = {}  # drafts that shared options still do: jobs are made faster from these
    made = []
    for draft in drafts:
        old = draft.options
        if given is None and old.get("trace") is not None:
            made.append(draft)
            continue
        options = alike.get(id(old))
        if options is None:
            options = alike[id(old)] = {**old, "trace": headers}
        made.append(Draft(draft._app, draft.id, draft.task, draft.payload_text, options, draft._handler))
    return made


def _described(drafts: Sequence[Draft[Any]]) -> tuple[str, dict[str, Any]]:
    """Return the name and the attributes of the span of a submit."""
    task = shared([draft.task for draft in drafts])
    queue = shared([draft.options.get("queue", "default") for draft in drafts])
    attributes = _about("submit", "send", queue, task)
    if len(drafts) > 1:
        attributes["messaging.batch.message_count"] = len(drafts)
    return "submit" if task is None else f"submit {task}", attributes


def _about(name: str, type: str, queue: str | None, task: str | None) -> dict[str, Any]:
    """Return attributes by the names of the semantic conventions for messaging."""
    found: dict[str, Any] = {
        "messaging.system": "headrace",
        "messaging.operation.name": name,
        "messaging.operation.type": type,
    }
    if queue is not None:
        found["messaging.destination.name"] = queue
    if task is not None:
        found["headrace.task"] = task
    return found


def _links(ctx: Context) -> list[Link]:
    """Return a link to the span of the previous attempt, if that failed and stored its span."""
    error = ctx.job.error
    header = None if error is None or not error.details else error.details.get(SPAN)
    if not isinstance(header, str):
        return []
    before = trace.get_current_span(_W3C.extract({SPAN: header}, contexts.Context())).get_span_context()
    return [Link(before, {"headrace.attempt": ctx.attempt - 1})] if before.is_valid else []


def _ended(span: Span, ctx: Context, ending: Ending) -> Ending:
    """Set how the run ended on the span; return the ending, with the span stored for the next attempt."""
    if ctx.stopping == "timed_out":
        _stopped(span, ctx)
        return ending  # whatever it is, the run counts as timed out: see Run
    match ending:
        case Completed():
            span.set_attribute("headrace.outcome", Outcome.COMPLETED.value)
        case Snoozed():
            span.set_attribute("headrace.outcome", Outcome.SNOOZED.value)
        case Failed():
            _failed(span, ending)
            return replace(ending, error=noted(ending.error, getattr(ctx, "_trace", {})))
        case Released() | TimedOut():
            _stopped(span, ctx)
    return ending


def _failed(span: Span, ending: Failed) -> None:
    error, private = ending.error, ending.reason in _PRIVATE
    span.set_attributes({"headrace.outcome": Outcome.FAILED.value, "error.type": error.type})
    span.set_status(Status(StatusCode.ERROR, error.type if private else f"{error.type}: {error.message}"))
    if not private:
        said = {"exception.type": error.type, "exception.message": error.message}
        span.add_event("exception", said | ({"exception.stacktrace": error.traceback} if error.traceback else {}))


def _stopped(span: Span, ctx: Context) -> None:
    """Mark a run that was stopped, or that was abandoned."""
    outcome = {"cancelled": Outcome.CANCELLED, "timed_out": Outcome.TIMED_OUT}.get(ctx.stopping or "", Outcome.RELEASED)
    span.set_attribute("headrace.outcome", outcome.value)
    if outcome is not Outcome.RELEASED:  # a release is no fault of the job, and is not charged
        span.set_attribute("error.type", outcome.value)
        span.set_status(Status(StatusCode.ERROR, outcome.value.replace("_", " ")))


def _labels() -> dict[str, str]:
    """Return the fields of a log record about its span."""
    here = trace.get_current_span().get_span_context()
    if not here.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(here.trace_id), "span_id": trace.format_span_id(here.span_id)}
