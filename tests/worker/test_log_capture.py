"""What handlers say to ``logging`` is kept with their jobs, and nothing else about logging changes."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self
from uuid import UUID

import pytest

from headrace import App
from headrace.core.defaults import MAX_LOG_LINE_CHARACTERS, MAX_LOG_LINES
from headrace.core.entry import Kind, LogLine
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Reason, Status
from headrace.logs import FIELDS, JsonFormatter, TextFormatter
from headrace.worker.execution.context import Context
from headrace.worker.log_capture import Style, _catcher, _text, caught_logs, shown_logs, style_here
from tests.support.hostile import WICKED, raw_in
from tests.support.programs.process_tasks import lingers, says, waits
from tests.support.shop import Shop
from tests.support.until import until

pytestmark = pytest.mark.timeout(240)

shop_log = logging.getLogger("shop.till")


@pytest.fixture(autouse=True)
def _talkative() -> Iterator[None]:
    shop_log.setLevel(logging.DEBUG)
    yield
    shop_log.setLevel(logging.NOTSET)


async def lines(shop: Shop, id: UUID) -> list[LogLine]:
    """The log of a job."""
    found, after = list[LogLine](), (0, -1)
    while page := await shop.engine.entries.tail(id, Kind.LOG, after):
        found += [LogLine.of(entry) for entry in page]
        after = page[-1].cursor
    return found


async def test_lines_are_kept_with_their_job_and_attempt(shop: Shop) -> None:
    async def sell(ctx: Context, what: str) -> None:
        shop_log.info("selling %s", what)
        await asyncio.sleep(0)
        if ctx.attempt == 1:
            try:
                raise ValueError("no till")
            except ValueError:
                shop_log.exception("trouble")
                raise

    shop.task(sell)
    async with shop.worker(concurrency=5):
        ids = [await shop.submit("sell", payload={"what": what}) for what in ("tea", "jam")]
        await shop.all_ended(ids)
    for id, what in zip(ids, ("tea", "jam"), strict=True):
        said = await lines(shop, id)
        assert [(one.attempt, one.number, one.level, one.logger) for one in said] == [
            (1, 1, "INFO", "shop.till"),
            (1, 2, "ERROR", "shop.till"),
            (2, 1, "INFO", "shop.till"),
        ]
        assert said[0].message == said[2].message == f"selling {what}"
        assert said[1].message.startswith("trouble\nTraceback")
        assert said[1].message.endswith("ValueError: no till")
        assert said[0].at <= said[1].at <= said[2].at


async def test_threads_and_tasks_of_a_handler_speak_for_it(shop: Shop) -> None:
    def plain() -> str:
        shop_log.debug("from %s", "a thread")
        return threading.current_thread().name

    async def spawns() -> None:
        async def inner() -> None:
            shop_log.info("inner")

        await asyncio.create_task(inner())
        await asyncio.to_thread(shop_log.info, "thread")

    shop.task(plain)
    shop.task(spawns)
    async with shop.worker():
        one, two = await shop.submit("plain"), await shop.submit("spawns")
        await shop.all_ended([one, two])
    assert [line.message for line in await lines(shop, one)] == ["from a thread"]
    assert [line.message for line in await lines(shop, two)] == ["inner", "thread"]


async def test_a_child_process_is_heard(shop: Shop) -> None:
    shop.handlers["says"] = says.handler
    async with shop.worker():
        id = await shop.submit("says", payload={"text": "hello"}, retry=Retry(0))
        job = await shop.ended(id, within=50)
    assert [(line.level, line.logger, line.message) for line in await lines(shop, id)] == [
        ("WARNING", "child", "hello in attempt 1")
    ]
    assert job.status is Status.FAILED
    assert job.error is not None
    assert "run_in" in job.error.message, "a step cannot be kept from there"


async def test_what_a_job_left_behind_in_a_child_does_not_speak_for_the_next(shop: Shop, tmp_path: Path) -> None:
    begin, done = tmp_path / "begin", str(tmp_path / "done")
    shop.handlers |= {"lingers": lingers.handler, "waits": waits.handler}
    async with shop.worker(concurrency=1):
        one = await shop.ended(await shop.submit("lingers", payload={"begin": str(begin), "done": done}), within=50)
        two = await shop.ended(await shop.submit("waits", payload={"note": str(begin), "gate": done}), within=50)
    assert (one.result, two.result) == (int(begin.read_text()), "done"), "by the same process"
    assert await lines(shop, two.id) == []
    assert two.progress is None or two.progress.message is None


class Kept(logging.Handler):
    """Keeps the records that it is given."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.loggers = [logging.getLogger(name) for name in names]
        self.records = list[logging.LogRecord]()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def __enter__(self) -> Self:
        for logger in self.loggers:
            logger.addHandler(self)
        return self

    def __exit__(self, *exc: object) -> None:
        for logger in self.loggers:
            logger.removeHandler(self)


def labels_of(record: logging.LogRecord) -> dict[str, object]:
    """What a record says about its job."""
    return {name: vars(record)[name] for name in FIELDS if name in vars(record)}


async def test_every_record_made_inside_a_handler_says_which_job_it_was_made_in(shop: Shop) -> None:
    third = logging.getLogger("third.party")

    async def sell(ctx: Context) -> None:
        shop_log.info("on the loop")
        await asyncio.to_thread(third.warning, "in a thread of its own")
        if ctx.attempt == 1:
            raise ValueError("once more")

    def plain() -> None:
        third.warning("in a thread")

    shop.task(sell)
    shop.task(plain)
    with Kept("shop.till", "third.party") as kept:
        shop_log.info("before")
        async with shop.worker() as worker:
            one, two = await shop.submit("sell", queue="till"), await shop.submit("plain")
            await shop.all_ended([one, two])
        shop_log.info("after")
    said = {"job_id": str(one), "task": "sell", "queue": "till", "worker": str(worker.id)}
    first, second = {**said, "attempt": 1}, {**said, "attempt": 2}
    thread = {"job_id": str(two), "task": "plain", "queue": "default", "worker": str(worker.id), "attempt": 1}
    found = [(record.getMessage(), labels_of(record)) for record in kept.records]
    assert found[0] == ("before", {})
    assert found[-1] == ("after", {})
    of_sell = [("on the loop", first), ("in a thread of its own", first)]
    of_sell += [("on the loop", second), ("in a thread of its own", second)]
    assert [each for each in found[1:-1] if each[1]["task"] == "sell"] == of_sell
    assert [each for each in found[1:-1] if each[1]["task"] == "plain"] == [("in a thread", thread)]


async def test_what_was_passed_as_extra_stays_as_it_is(shop: Shop) -> None:
    async def sell() -> None:
        shop_log.info("sold", extra={"task": "mine", "order": 7})

    shop.task(sell)
    with Kept("shop.till") as kept:
        async with shop.worker():
            id = await shop.submit("sell")
            await shop.ended(id)
    (record,) = kept.records
    assert (vars(record)["task"], vars(record)["order"], vars(record)["job_id"]) == ("mine", 7, str(id))
    told = json.loads(JsonFormatter().format(record))
    assert (told["task"], told["extra_task"], told["order"]) == ("sell", "mine", 7)
    assert "sell " in TextFormatter().format(record)


async def test_a_call_for_many_jobs_names_none_of_them() -> None:
    app = App("memory://")

    @app.bulk(size=2, wait=5)
    async def index(docs: list[int]) -> list[int]:
        shop_log.info("together")
        return docs

    with Kept("shop.till") as kept:
        async with app, app.worker():
            for job in await index.map([(1,), (2,)]):
                await job.result(timeout=50)
    assert kept.records
    for record in kept.records:
        assert labels_of(record).keys() == {"task", "queue", "worker"}
        assert TextFormatter().format(record).endswith(" index: together")


async def test_what_headrace_says_about_a_job_names_it(shop: Shop) -> None:
    async def fails() -> None:
        raise ValueError("no till")

    shop.task(fails)
    with Kept("headrace.worker") as kept:
        async with shop.worker() as worker:
            id = await shop.submit("fails", retry=Retry(0))
            await shop.ended(id)
    (record,) = [one for one in kept.records if "no till" in one.getMessage()]
    told = labels_of(record)
    assert told == {"job_id": str(id), "task": "fails", "attempt": 1, "queue": "default", "worker": str(worker.id)}


@pytest.fixture
def bare() -> logging.Logger:
    """A logger whose records no handler takes."""
    return logging.Logger("nobodys")  # noqa: LOG001  # one of the tree has the handlers of the test runner


@pytest.mark.parametrize("style", ["text", "json"])
def test_what_no_handler_takes_is_shown_in_the_style_of_the_process(
    bare: logging.Logger, capsys: pytest.CaptureFixture[str], style: Style
) -> None:
    with shown_logs(style):
        assert style_here() == style
        bare.warning("nobody takes this")
    said = capsys.readouterr().err
    if style == "json":
        assert json.loads(said)["message"] == "nobody takes this"
    else:
        assert said.endswith(" warning: nobody takes this\n")
    bare.warning("as ever")
    assert capsys.readouterr().err == "as ever\n"
    assert style_here() is None


def test_text_handlers_of_an_app_write_json_whenever_they_were_made(
    bare: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    class Own(logging.Formatter):
        pass

    with shown_logs("json"):
        plain, own, file = logging.StreamHandler(), logging.StreamHandler(), logging.StreamHandler(io.StringIO())
        plain.setFormatter(simple := logging.Formatter("plain %(message)s"))
        own.setFormatter(Own("own %(message)s"))
        bare.handlers = [plain, own, file]
        bare.warning("hear")
        first, second = capsys.readouterr().err.splitlines()
    assert json.loads(first)["message"] == "hear"
    assert second == "own hear"
    assert file.stream.getvalue() == "hear\n"
    assert plain.formatter is simple


async def test_a_log_has_an_end_and_says_how_much_is_missing(shop: Shop) -> None:
    async def floods() -> None:
        for number in range(MAX_LOG_LINES + 7):
            shop_log.info("%d", number)
        shop_log.info("x" * (MAX_LOG_LINE_CHARACTERS + 1))

    shop.task(floods)
    async with shop.worker():
        id = await shop.submit("floods")
        await shop.ended(id)
    said = await lines(shop, id)
    assert [line.message for line in said[:-1]] == [str(number) for number in range(MAX_LOG_LINES)]
    assert said[-1].message.startswith("8 more lines were not kept")


async def test_the_log_of_a_thread_whose_time_is_up_says_how_much_is_missing(shop: Shop) -> None:
    flooded, gate = threading.Event(), threading.Event()

    def floods() -> None:
        for number in range(MAX_LOG_LINES + 7):
            shop_log.info("%d", number)
        flooded.set()
        gate.wait(45)

    shop.task(floods)
    try:
        async with shop.worker(grace=0.1) as worker:
            id = await shop.submit("floods", retry=Retry(0))
            await until(flooded.is_set)
            (run,) = worker._slots.runs.values()
            run.stop("timed_out")  # as when its time is up
            assert (await shop.ended(id)).reason is Reason.TIMEOUT
            said = await lines(shop, id)
    finally:
        gate.set()
    assert [line.message for line in said[:-1]] == [str(number) for number in range(MAX_LOG_LINES)]
    assert said[-1].message.startswith("7 more lines were not kept")


async def test_a_long_line_is_cut_and_an_odd_one_is_kept(shop: Shop) -> None:
    async def odd() -> None:
        shop_log.info("x" * 2 * MAX_LOG_LINE_CHARACTERS)
        shop_log.info("odd \0 and \u2028")

    shop.task(odd)
    async with shop.worker():
        id = await shop.submit("odd")
        assert (await shop.ended(id)).status is Status.COMPLETED
    said = [line.message for line in await lines(shop, id)]
    assert said[0].startswith("x" * MAX_LOG_LINE_CHARACTERS + " … ")
    assert len(said[0]) < MAX_LOG_LINE_CHARACTERS + 50
    assert said[1:] == ["odd \0 and \u2028"]


async def test_what_a_filter_took_away_is_not_kept(shop: Shop) -> None:
    class Discreet(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            record.msg = str(record.msg).replace("secret", "***")
            return "never" not in record.msg

    async def sell() -> None:
        shop_log.info("the secret")
        shop_log.info("never")

    discreet = Discreet()
    shop_log.addFilter(discreet)
    try:
        shop.task(sell)
        async with shop.worker():
            id = await shop.submit("sell")
            await shop.ended(id)
    finally:
        shop_log.removeFilter(discreet)
    assert [line.message for line in await lines(shop, id)] == ["the ***"]


async def test_what_is_said_outside_a_handler_is_nobodys(shop: Shop) -> None:
    late = asyncio.Event()

    async def leaves() -> None:
        async def after() -> None:
            await late.wait()
            shop_log.info("too late")

        tasks.append(asyncio.create_task(after()))

    tasks: list[asyncio.Task[None]] = []
    shop.task(leaves)
    async with shop.worker():
        shop_log.info("before")
        id = await shop.submit("leaves")
        await shop.ended(id)
        late.set()
        await tasks[0]
    assert await lines(shop, id) == []


@pytest.fixture
def alone() -> Iterator[None]:
    """As if no App were open: one of another test may be, for callers without an event loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.Logger, "callHandlers", _catcher._pass_on or logging.Logger.callHandlers)
        patch.setattr(_catcher, "_pass_on", None)
        patch.setattr(_catcher, "_workers", 0)
        yield


@pytest.mark.usefixtures("alone")
def test_everything_is_as_it_was_afterwards() -> None:
    before, handlers = logging.Logger.callHandlers, list(logging.getLogger().handlers)
    with caught_logs():
        with caught_logs():
            assert logging.Logger.callHandlers is not before
            assert logging.getLogger().handlers == handlers
        assert logging.Logger.callHandlers is not before
    assert logging.Logger.callHandlers is before


@pytest.mark.usefixtures("alone")
def test_what_others_put_in_front_stays_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    before = logging.Logger.callHandlers
    with caught_logs():
        ours = logging.Logger.callHandlers

        def theirs(self: logging.Logger, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())
            ours(self, record)

        monkeypatch.setattr(logging.Logger, "callHandlers", theirs)
    assert logging.Logger.callHandlers is theirs
    shop_log.info("one")
    with caught_logs():
        shop_log.info("two")
    assert seen == ["one", "two"]
    monkeypatch.undo()  # theirs is gone, ours is there
    with caught_logs():
        shop_log.info("three")
    assert logging.Logger.callHandlers is before
    assert seen == ["one", "two"]


def test_a_line_whose_arguments_do_not_fit_is_kept_raw_and_half_characters_are_replaced() -> None:
    record = logging.makeLogRecord({"msg": "%d", "args": ("no number",)})
    assert _text(record) == "%d ('no number',)"
    assert _text(logging.makeLogRecord({"msg": "half \ud800"})) == "half ?"


async def test_what_is_said_before_a_transaction_that_completes_the_job_is_kept(shop: Shop) -> None:
    if shop.engine.transactions is None:
        return

    async def sell(ctx: Context) -> str:
        for number in range(3):
            shop_log.info("before %d", number)
        async with ctx.transaction() as tx:
            tx.complete("sold")
        return "ignored"

    shop.task(sell)
    async with shop.worker():
        id = await shop.submit("sell")
        job = await shop.ended(id)
    assert job.result == "sold"
    assert [line.message for line in await lines(shop, id)] == [f"before {number}" for number in range(3)]


def test_what_headrace_logs_is_printable_whoever_writes_it_down() -> None:
    told = io.StringIO()
    handler = logging.StreamHandler(told)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    ours, theirs = logging.getLogger("headrace.requirements"), logging.getLogger("shop")
    try:
        for logger in (ours, theirs):
            logger.addHandler(handler)
        with caught_logs():
            ours.warning("jobs of %r require %s", "a", WICKED)
            try:
                raise ValueError(WICKED)
            except ValueError as error:
                ours.exception("it failed: %s", error)
            theirs.warning("line\nby line %s", "\x1b[31m")
    finally:
        for logger in (ours, theirs):
            logger.removeHandler(handler)
    said, _, rest = told.getvalue().partition("WARNING line")
    assert list(raw_in(said)) == []
    lines = said.splitlines()
    assert [line[:7] for line in lines if not line.startswith("    ")] == ["WARNING", "ERROR i"]
    assert rest == "\nby line \x1b[31m\n"  # what others say is theirs
