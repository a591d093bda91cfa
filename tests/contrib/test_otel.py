"""Spans of submits and runs, through the job, with OpenTelemetry's own SDK."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as names
from opentelemetry.semconv.attributes import error_attributes, exception_attributes
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from headrace import App, Context, Every, GiveUp, Retry, Snooze
from headrace.contrib.otel import instrument
from headrace.core import defaults
from headrace.core.job import Job
from headrace.errors import ConfigError, JobCancelled
from headrace.logs import JsonFormatter
from headrace.testing import harness
from tests.support.programs.traced_tasks import app as traced
from tests.support.programs.traced_tasks import here
from tests.support.until import until

NO_WAIT = Retry(3, backoff="fixed", initial=0.0, jitter=False)
INCOMING = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "rojo=1"}


class Traced:
    """An App, and the spans that it made."""

    def __init__(self, app: App) -> None:
        self.exporter, self.provider, self.app = InMemorySpanExporter(), TracerProvider(), app
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        instrument(app, self.provider)

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        """Those of this name, in the order they began."""
        found = [one for one in self.exporter.get_finished_spans() if name in (None, one.name)]
        return sorted(found, key=lambda one: one.start_time or 0)

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found

    async def drain(self) -> None:
        """Run everything that can be run now, with a worker."""
        await self.app.worker(burst=True).run(signals=False)


@pytest.fixture
def otel() -> Traced:
    return Traced(App("memory://"))


def id_of(span: ReadableSpan) -> int:
    return int(span.context.span_id)


def is_under(span: ReadableSpan, parent: ReadableSpan) -> bool:
    """Whether it is a child of the other, in its trace."""
    assert span.parent is not None
    return (span.parent.span_id, span.context.trace_id) == (parent.context.span_id, parent.context.trace_id)


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def header(span: ReadableSpan) -> str:
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


async def test_one_trace_from_the_submit_through_run_and_child_to_the_retry(otel: Traced) -> None:
    app = otel.app

    @app.task(queue="letters")
    def receipt(order: int) -> None: ...

    @app.task(queue="till", retry=NO_WAIT)
    async def charge(ctx: Context, order: int) -> str:
        await receipt.submit(order)
        if ctx.attempt == 1:
            raise ConnectionError("no answer")
        return header(otel.spans("run charge")[0])

    async with app:
        job = await charge.submit(7)
        await otel.drain()
        stored = await job.refresh()
    submit, (first, second) = otel.span("submit charge"), otel.spans("run charge")
    assert submit.parent is None
    assert stored.trace == {"traceparent": header(submit)}
    assert (submit.kind, first.kind, second.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CONSUMER)
    assert is_under(first, submit)
    assert is_under(second, submit)
    assert first.links == ()
    (link,) = second.links
    assert (link.context.trace_id, link.context.span_id) == (first.context.trace_id, first.context.span_id)
    assert dict(link.attributes or {}) == {"headrace.attempt": 1}
    # Each attempt submits its child; the second finds that of the first.
    by_first, by_second = otel.spans("submit receipt")
    assert is_under(by_first, first)
    assert is_under(by_second, second)
    assert is_under(otel.span("run receipt"), by_first)
    about = {
        names.MESSAGING_SYSTEM: "headrace",
        "headrace.task": "charge",
        names.MESSAGING_MESSAGE_ID: str(job.id),
    }
    about |= {names.MESSAGING_DESTINATION_NAME: "till"}
    sent = {names.MESSAGING_OPERATION_NAME: "submit", names.MESSAGING_OPERATION_TYPE: "send"}
    run = {names.MESSAGING_OPERATION_NAME: "run", names.MESSAGING_OPERATION_TYPE: "process"}
    assert said(submit) == about | sent
    worker = said(first)[names.MESSAGING_CLIENT_ID]
    ended = {"headrace.attempt": 1, "headrace.outcome": "failed", error_attributes.ERROR_TYPE: "ConnectionError"}
    assert said(first) == about | run | ended | {names.MESSAGING_CLIENT_ID: worker}
    ended = {"headrace.attempt": 2, "headrace.outcome": "completed"}
    assert said(second) == about | run | ended | {names.MESSAGING_CLIENT_ID: worker}
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "ConnectionError: no answer")
    assert second.status.status_code is submit.status.status_code is StatusCode.UNSET
    (event,) = first.events
    told = dict(event.attributes or {})
    assert event.name == "exception"
    assert told[exception_attributes.EXCEPTION_TYPE] == "ConnectionError"
    assert str(told[exception_attributes.EXCEPTION_STACKTRACE]).rstrip().endswith("ConnectionError: no answer")


async def test_one_span_for_a_call_that_submits_many(otel: Traced) -> None:
    app = otel.app

    @app.task
    async def one(n: int) -> None: ...

    @app.task(queue="other")
    async def two(n: int) -> None: ...

    async with app:
        await one.map([(n,) for n in range(3)])
        drafts = [one.draft(1), two.draft(2), two.options(trace=INCOMING).draft(3)]
        kept = [await job.refresh() for job in await app.submit_many(drafts)]
        assert await app.submit_many([]) == []
        await otel.drain()
    mapped, mixed = otel.span("submit one"), otel.span("submit")
    assert said(mapped)[names.MESSAGING_BATCH_MESSAGE_COUNT] == said(mixed)[names.MESSAGING_BATCH_MESSAGE_COUNT] == 3
    assert names.MESSAGING_DESTINATION_NAME not in said(mixed)
    assert names.MESSAGING_MESSAGE_ID not in said(mixed)
    runs = otel.spans("run one") + otel.spans("run two")
    assert sum(is_under(span, mapped) for span in runs) == 3
    assert sum(is_under(span, mixed) for span in runs) == 2
    # One that was given a trace of its own keeps it.
    assert [job.trace for job in kept] == [{"traceparent": header(mixed)}] * 2 + [INCOMING]
    assert len(runs) == 6


async def test_a_batch_is_one_span_and_so_is_what_follows_it(otel: Traced) -> None:
    app = otel.app

    @app.task
    async def one(n: int) -> None: ...

    @app.task
    async def report() -> None: ...

    async with app:
        async with app.batch(on_complete=report.draft()) as batch:
            batch.add_many([one.draft(1), one.draft(2)])
        await otel.drain()
    submit = otel.span("submit one")
    assert all(is_under(span, submit) for span in [*otel.spans("run one"), otel.span("run report")])
    assert len(otel.spans()) == 4


async def test_a_schedule_begins_a_trace_with_each_run(otel: Traced) -> None:
    app = otel.app

    @app.task(schedule=Every(minutes=1))
    async def tick() -> None: ...

    async with harness(app) as test:
        await test.advance(minutes=2)
    spans = otel.spans()
    assert {span.name for span in spans} == {"run tick"}
    assert len({span.context.trace_id for span in spans}) == len(spans) >= 2
    assert all(span.parent is None for span in spans)


async def test_a_rerun_does_not_carry_the_old_trace(otel: Traced) -> None:
    @otel.app.task
    async def charge() -> None: ...

    async with otel.app as app:
        job = await charge.submit()
        await otel.drain()
        again = await (await job.rerun()).refresh()
        await otel.drain()
    first, second = otel.spans("run charge")
    assert again.trace is None
    assert second.parent is None
    assert first.context.trace_id != second.context.trace_id
    assert second.links == ()
    assert app is otel.app


async def test_a_submit_is_part_of_the_span_it_is_made_in(otel: Traced) -> None:
    @otel.app.task
    async def charge() -> None:
        assert baggage.get_baggage("shop") == "tea"

    async with otel.app:
        with otel.provider.get_tracer("web").start_as_current_span("request") as request:
            token = context.attach(baggage.set_baggage("shop", "tea"))
            job = await charge.submit()
            context.detach(token)
        await otel.drain()
        assert (await job.refresh()).result is None
    assert is_under(otel.span("submit charge"), otel.span("request"))
    assert is_under(otel.span("run charge"), otel.span("submit charge"))
    assert said(otel.span("run charge"))["headrace.outcome"] == "completed"
    assert request.get_span_context().is_valid


async def test_an_incoming_trace_is_continued(otel: Traced) -> None:
    @otel.app.task
    async def charge() -> None: ...

    async with otel.app:
        job = await charge.options(trace=INCOMING).submit()
        await otel.drain()
        stored = await job.refresh()
    submit = otel.span("submit charge")
    assert submit.parent is not None
    assert f"{submit.parent.span_id:016x}" in INCOMING["traceparent"]
    assert f"{submit.context.trace_id:032x}" in INCOMING["traceparent"]
    assert stored.trace == {"traceparent": header(submit), "tracestate": "rojo=1"}
    assert is_under(otel.span("run charge"), submit)


async def test_a_submit_without_a_loop_has_its_span(tmp_path: Path) -> None:
    otel = Traced(App(f"sqlite:///{tmp_path / 'jobs.db'}"))

    @otel.app.task
    def charge() -> None: ...

    def web() -> Job | None:
        with otel.provider.get_tracer("web").start_as_current_span("request"):
            return charge.submit_sync().last

    job = await asyncio.to_thread(web)
    submit = otel.span("submit charge")
    assert is_under(submit, otel.span("request"))
    assert job is not None
    assert job.trace == {"traceparent": header(submit)}


async def test_a_submit_that_fails_says_so(otel: Traced) -> None:
    @otel.app.task(dedup="once", on_duplicate="raise")
    async def charge() -> None: ...

    async with otel.app:
        first = await charge.submit()
        with pytest.raises(Exception, match=str(first.id)):
            await charge.submit()
        again = await charge.options(on_duplicate="return").submit()
    good, bad, same = otel.spans("submit charge")
    assert (good.status.status_code, bad.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert [event.name for event in bad.events] == ["exception"]
    assert (said(same)[names.MESSAGING_MESSAGE_ID], said(same)["headrace.duplicate"]) == (str(first.id), True)
    assert again.id == first.id


async def test_how_a_run_ended_is_its_status(otel: Traced) -> None:
    app = otel.app

    @app.task(retry=Retry(0))
    async def gives_up() -> None:
        raise GiveUp("no such order")

    @app.task(retry=Retry(0))
    async def odd(secret: str) -> int:
        return secret  # type: ignore[return-value]

    @app.task
    def naps(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Snooze(0)

    async with app:
        for draft in (gives_up.draft(), odd.draft("tea"), naps.draft()):
            await draft.submit()
        await otel.drain()
    found = {span.name: span for span in otel.spans() if span.name.startswith("run ")}
    assert found["run gives_up"].status.description == "GiveUp: no such order"
    assert found["run odd"].status.description == "InvalidResult"
    assert "tea" not in found["run odd"].to_json()
    asleep, awake = otel.spans("run naps")
    assert (said(asleep)["headrace.outcome"], said(awake)["headrace.outcome"]) == ("snoozed", "completed")
    assert asleep.status.status_code is StatusCode.UNSET


async def test_a_run_that_was_stopped_says_why(otel: Traced) -> None:
    app, runs = otel.app, set[str]()

    @app.task
    async def stays(ctx: Context, name: str) -> None:
        runs.add(name)
        await asyncio.Event().wait()

    @app.task
    def obeys(ctx: Context) -> None:
        runs.add("obeys")
        while not threading.Event().wait(0.01):
            ctx.check()

    async with app:
        async with app.worker(grace=0):
            jobs = [await stays.submit("cancelled"), await obeys.submit()]
            kept = await stays.submit("released")
            await until(lambda: runs == {"cancelled", "released", "obeys"})
            for job in jobs:
                await job.cancel()
            for job in jobs:
                with pytest.raises(JobCancelled):
                    await job.result(timeout=50)
        released = await kept.refresh()
        await until(lambda: sum(span.name.startswith("run ") for span in otel.spans()) == 3)
    by_id = {said(span)[names.MESSAGING_MESSAGE_ID]: span for span in otel.spans() if span.name.startswith("run ")}
    for job in jobs:
        span = by_id[str(job.id)]
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "cancelled")
        assert said(span)["headrace.outcome"] == said(span)["error.type"] == "cancelled"
    assert said(by_id[str(released.id)])["headrace.outcome"] == "released"
    assert by_id[str(released.id)].status.status_code is StatusCode.UNSET


async def test_a_large_error_is_linked_to_as_well(otel: Traced) -> None:
    @otel.app.task(retry=NO_WAIT)
    async def charge(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("x" * 2 * defaults.MAX_ERROR_BYTES)

    async with otel.app:
        job = await charge.submit()
        await otel.drain()
        (attempt, *_) = (await otel.app.jobs.history(job.id)).attempts
    first, second = otel.spans("run charge")
    assert [link.context.span_id for link in second.links] == [id_of(first)]
    assert attempt.error is not None
    assert len(msgspec.json.encode(attempt.error)) <= defaults.MAX_ERROR_BYTES


@pytest.mark.parametrize("plain", [False, True], ids=["async", "thread"])
async def test_a_run_whose_time_was_up_is_linked_to(otel: Traced, plain: bool) -> None:
    # Whatever becomes of the second attempt: on a machine that stands still its time may be up as well.
    async def waits(ctx: Context) -> None:
        if ctx.attempt == 1:
            await asyncio.Event().wait()

    def sleeps(ctx: Context) -> None:
        while ctx.attempt == 1 and ctx.stopping is None:
            threading.Event().wait(0.01)

    slow = otel.app.task(name="slow", timeout=0.1, retry=Retry(50, backoff="fixed", initial=0.0, jitter=False))
    task: Any = slow(sleeps) if plain else slow(waits)
    async with otel.app, otel.app.worker():
        job = await task.submit()
        await job.result(timeout=50)
        (attempt, *_) = (await otel.app.jobs.history(job.id)).attempts
        await until(lambda: {1, 2} <= {said(span)["headrace.attempt"] for span in otel.spans("run slow")})
    by_attempt = {said(span)["headrace.attempt"]: span for span in otel.spans("run slow")}
    first, second = by_attempt[1], by_attempt[2]
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "timed out")
    assert said(first)["headrace.outcome"] == "timed_out"
    assert attempt.error is not None
    assert (attempt.error.type, attempt.error.details) == ("Timeout", {"traceparent": header(first)})
    assert attempt.error.message == "the attempt ran out of time (0.1 s)"
    (link,) = second.links
    assert link.context.span_id == id_of(first)


async def test_threads_and_bulk_calls(otel: Traced) -> None:
    app, seen = otel.app, list[int]()

    @app.task
    def plain() -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    @app.bulk(size=2, wait=5)
    async def index(docs: list[int]) -> list[int]:
        return docs

    async with app:
        await plain.submit()
        await index.map([(1,), (2,)])
        await otel.drain()
    assert seen == [id_of(otel.span("run plain"))]
    assert [is_under(span, otel.span("submit index")) for span in otel.spans("run index")] == [True, True]


@pytest.mark.timeout(240)
async def test_a_child_process_is_in_the_span_of_its_run() -> None:
    otel = Traced(traced)
    async with traced:
        job = await here.submit()
        await otel.drain()
        found = await job.result(timeout=50)
    run = otel.span("run here")
    assert list(found) == [f"{run.context.trace_id:032x}", f"{run.context.span_id:016x}"]


async def test_log_records_of_a_run_name_its_span(otel: Traced) -> None:
    lines = list[dict[str, Any]]()

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonFormatter().format(record)))

    log, kept = logging.getLogger("traced"), Kept()

    @otel.app.task
    async def charge() -> None:
        log.warning("charging", extra={"span_id": "mine"})

    log.addHandler(kept)
    try:
        async with otel.app:
            job = await charge.submit()
            await otel.drain()
    finally:
        log.removeHandler(kept)
    (line,), run = lines, otel.span("run charge")
    assert line["job_id"] == str(job.id)
    assert (line["trace_id"], line["span_id"]) == (f"{run.context.trace_id:032x}", f"{run.context.span_id:016x}")
    assert line["extra_span_id"] == "mine"


async def test_without_a_provider_jobs_run_and_a_trace_is_passed_on() -> None:
    app = App("memory://")
    instrument(app, NoOpTracerProvider())

    @app.task
    async def charge() -> None: ...

    async with app:
        plain, given = await charge.submit(), await charge.options(trace=INCOMING).submit()
        await app.worker(burst=True).run(signals=False)
        one, two = await plain.refresh(), await given.refresh()
    assert one.trace is None
    assert two.trace == INCOMING
    assert one.result is two.result is None


async def test_a_second_call_changes_the_provider(otel: Traced) -> None:
    @otel.app.task
    async def charge() -> None: ...

    other = Traced(otel.app)
    async with otel.app:
        await charge.submit()
        await otel.drain()
    assert [span.name for span in other.spans()] == ["submit charge", "run charge"]
    assert otel.spans() == []


async def test_the_harness_makes_spans_too(otel: Traced) -> None:
    @otel.app.task(retry=Retry(1, backoff=[60], jitter=False))
    async def charge(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("no")

    async with harness(otel.app) as test:
        await charge.submit()
        await test.drain()
        await test.advance(minutes=2)
    first, second = otel.spans("run charge")
    assert [link.context.span_id for link in second.links] == [id_of(first)]


def python(*lines: str, cwd: Path) -> str:
    """What a fresh process prints, on either stream."""
    code = "\n".join(lines)
    ran = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    return ran.stdout + ran.stderr


def test_nothing_is_imported_without_instrument_and_a_missing_extra_is_one_line(tmp_path: Path) -> None:
    told = python(
        "import asyncio, sys",
        "from headrace import App",
        "import headrace.cli.process.worker, headrace.cli.commands.worker",
        "app = App('memory://')",
        "@app.task",
        "async def add(a: int) -> int: return a",
        "async def main():",
        "    async with app:",
        "        await add.submit(1)",
        "        await app.worker(burst=True).run(signals=False)",
        "asyncio.run(main())",
        "print([name for name in sys.modules if name.split('.')[0] == 'opentelemetry' or 'contrib' in name])",
        "sys.modules['opentelemetry'] = None",
        "try: import headrace.contrib.otel",
        "except Exception as error: print(type(error).__name__, error, error.__cause__)",
        cwd=tmp_path,
    )
    assert told.splitlines() == [
        "[]",
        'MissingExtra headrace.contrib.otel needs opentelemetry-api: pip install "headrace[otel]" None',
    ]


class Broken(SpanProcessor):
    """Fails at the start of each span, or at its end, as a processor of somebody's may."""

    def __init__(self, at: str) -> None:
        self.at = at

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self.at == "start":
            raise OSError("no room for spans")

    def on_end(self, span: ReadableSpan) -> None:
        if self.at == "end":
            raise OSError("no room for spans")


@pytest.mark.parametrize("at", ["start", "end"])
async def test_neither_a_submit_nor_a_job_fails_because_its_span_does(at: str, caplog: Any) -> None:
    otel = Traced(App("memory://"))
    otel.provider.add_span_processor(Broken(at))
    runs: list[int] = []

    @otel.app.task(retry=NO_WAIT)
    async def work(n: int) -> None:
        runs.append(n)

    async with otel.app:
        jobs = [await work.options(trace=INCOMING).submit(n) for n in (1, 2)]
        await otel.drain()
        assert [(await job.refresh()).status for job in jobs] == ["completed", "completed"]
    assert sorted(runs) == [1, 2], "each once"
    trace_id = INCOMING["traceparent"][3:35]
    assert all(job.last is not None and trace_id in str(job.last.trace) for job in jobs), "the trace goes on"
    assert [record.message.count("no room for spans") for record in caplog.records if "span" in record.message] == [1]


def test_it_takes_an_app() -> None:
    with pytest.raises(ConfigError, match=r"takes the App, as in instrument\(app\), not 'memory://'"):
        instrument("memory://")  # type: ignore[arg-type]
