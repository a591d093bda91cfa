"""Every door has a bound: whatever is said there is kept whole, or refused by a typed error, alike on every engine."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import App, Cron, Every, Retry
from headrace.client.api.tasks import UnregisteredTask
from headrace.core import defaults
from headrace.core.attempt import ErrorInfo
from headrace.core.limits.rate import Rate
from headrace.core.status import Status
from headrace.errors import (
    MAX_DURATION_SECONDS,
    ConfigError,
    HeadraceError,
    InvalidPayload,
    InvalidResult,
    JobFailed,
    PayloadTooLarge,
    RetryLater,
    Snooze,
)
from tests.support.apps import ENGINES, url_of
from tests.support.programs import process_tasks
from tests.support.seed import examples
from tests.support.until import until

pytestmark = pytest.mark.every_engine

EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))
FIRST, LAST = datetime.min.replace(tzinfo=EAST), datetime.max.replace(tzinfo=WEST)
"""Moments that have no UTC."""
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - to be refused


def apps(url: str) -> App:
    """An App with a task for each kind of door."""
    app = App(url)

    @app.task
    async def work(value: Any = None) -> Any:
        return value

    @app.task(dedup="report:{value}", name="keyed")
    async def keyed(value: str) -> None: ...

    @app.task(concurrency_key="{value}", name="turns")
    async def turns(value: str) -> None: ...

    @app.task(name="parent")
    async def parent(name: str, value: str) -> str:
        try:
            await app.tasks["work"].options(**{name: value}).submit()  # type: ignore[arg-type]
        except ConfigError as error:
            return str(error)
        return "stored"

    return app


Door = Callable[[App, Any], Awaitable[Any]]


def option(name: str) -> Door:
    async def authenticator(app: App, value: Any) -> Any:
        return await app.tasks["work"]._with_options({name: value}).submit()

    return authenticator


def by_name(name: str) -> Door:
    async def authenticator(app: App, value: Any) -> Any:
        options: Any = {name: value}
        return await app.submit("unheard_of", {"a": 1}, **options)

    return authenticator


async def _acted(app: App, verb: str, **said: Any) -> Any:
    handle = await app.tasks["work"].submit()
    if verb == "discard":
        await app.jobs.handle(handle.id).resolve()
    if verb == "retry":
        await app.jobs.handle(handle.id).cancel()
    before = await app.jobs.get(handle.id)
    try:
        return await getattr(app.jobs.handle(handle.id), verb)(**said)
    except HeadraceError:
        assert await app.jobs.get(handle.id) == before
        raise


async def _batch(app: App, value: Any) -> Any:
    async with app.batch() as batch:
        batch.add(app.tasks["work"].draft())
        batch.add(app.tasks["work"]._with_options({"tags": value}).draft())


async def _many(app: App, value: Any) -> Any:
    task = app.tasks["work"]
    return await app.submit_many([task.draft(), task._with_options({"dedup": value}).draft()])


async def _cancelled_batch(app: App, value: Any) -> Any:
    async with app.batch() as batch:
        batch.add(app.tasks["work"].draft())
    before = await batch.refresh()
    try:
        return await batch.cancel(by=value)
    except HeadraceError:
        assert await batch.refresh() == before
        raise


def _ignored(authenticator: Door) -> Door:
    async def quiet(app: App, value: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnregisteredTask)
            return await authenticator(app, value)

    return quiet


def _schedule(**rule: Any) -> Door:
    async def authenticator(app: App, value: Any) -> Any:
        made = {name: value if one is ... else one for name, one in rule.items()}
        return await app.schedules.set("nightly", Every(**made), app.tasks["work"].draft())

    return authenticator


async def _named_schedule(app: App, value: Any) -> Any:
    return await app.schedules.set(value, Cron("0 2 * * *"), app.tasks["work"].draft())


async def _mapped(app: App, value: Any) -> Any:
    return await app.tasks["keyed"].map([("fine",), (value,)])


TEXTS: dict[str, tuple[Door, int]] = {
    **{
        f"options({name})": (option(name), defaults.MAX_KEY_CHARACTERS)
        for name in ("dedup", "customer", "concurrency_key")
    },
    **{
        f"by name, {name}": (_ignored(by_name(name)), defaults.MAX_KEY_CHARACTERS)
        for name in ("dedup", "customer", "concurrency_key")
    },
    "options(queue)": (option("queue"), defaults.MAX_NAME_CHARACTERS),
    "by name, queue": (_ignored(by_name("queue")), defaults.MAX_NAME_CHARACTERS),
    "a tag": (lambda app, value: option("tags")(app, [value]), defaults.MAX_TAG_CHARACTERS),
    "a task by name": (_ignored(lambda app, value: app.submit(value, {})), defaults.MAX_NAME_CHARACTERS),
    "a template of dedup": (
        lambda app, value: app.tasks["keyed"].submit(value),
        defaults.MAX_KEY_CHARACTERS - len("report:"),
    ),
    "a template of dedup, mapped": (_mapped, defaults.MAX_KEY_CHARACTERS - len("report:")),
    "a template of concurrency_key": (
        lambda app, value: app.tasks["turns"].submit(value),
        defaults.MAX_KEY_CHARACTERS,
    ),
    "submit_many": (_many, defaults.MAX_KEY_CHARACTERS),
    "a batch": (lambda app, value: _batch(app, [value]), defaults.MAX_TAG_CHARACTERS),
    "cancel(by)": (lambda app, value: _acted(app, "cancel", by=value), defaults.MAX_NOTE_CHARACTERS),
    "retry(by)": (lambda app, value: _acted(app, "retry", by=value), defaults.MAX_NOTE_CHARACTERS),
    "discard(by)": (lambda app, value: _acted(app, "discard", by=value), defaults.MAX_NOTE_CHARACTERS),
    "resolve(by)": (lambda app, value: _acted(app, "resolve", by=value), defaults.MAX_NOTE_CHARACTERS),
    "batch.cancel(by)": (_cancelled_batch, defaults.MAX_NOTE_CHARACTERS),
    "pause_queue": (lambda app, value: app.queues.pause(value), defaults.MAX_NAME_CHARACTERS),
    "pause_queue(by)": (lambda app, value: app.queues.pause("q", by=value), defaults.MAX_NOTE_CHARACTERS),
    "set_queue": (lambda app, value: app.queues.set(value, priority=1), defaults.MAX_NAME_CHARACTERS),
    "set_limit": (lambda app, value: app.limits.set(value, max_concurrency=1), defaults.MAX_NAME_CHARACTERS),
    "set_limit(rates)": (lambda app, value: app.limits.set("t", rates=[value]), defaults.MAX_NAME_CHARACTERS),
    "set_rate": (lambda app, value: app.rates.set(value, Rate(1, per=1)), defaults.MAX_NAME_CHARACTERS),
    "a schedule's name": (_named_schedule, defaults.MAX_NAME_CHARACTERS),
}
"""Every door that takes text, and how much of it."""

BAD = {"a NUL": "a\0b", "half a character": "a\ud83d", "the other half": "\udc00a"}


@pytest.fixture(params=ENGINES)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    async with apps(url_of(request.param, tmp_path)) as app:
        yield app


async def _stored(app: App) -> Any:
    """All that a refused call must leave as it was."""
    return (await app.stats.counts()).ledger.accepted, await app.session.engine.documents.settings()


async def _refusal(app: App, authenticator: Door, value: Any) -> HeadraceError:
    """What the door says to a value it must refuse; nothing of the call may be kept but what came before it."""
    settings = await app.session.engine.documents.settings()
    jobs = [job.id for job in (await app.jobs.list(limit=1000)).items]
    with pytest.raises(HeadraceError) as caught:
        await authenticator(app, value)
    assert await app.session.engine.documents.settings() == settings
    new = [job for job in (await app.jobs.list(limit=1000)).items if job.id not in jobs]
    assert len(new) <= 1  # the job that was to be acted on
    assert all(job.customer is job.dedup is None and job.queue == "default" and not job.tags for job in new)
    return caught.value


@pytest.mark.parametrize("name", TEXTS)
async def test_text_has_a_bound_at_every_door(app: App, name: str) -> None:
    authenticator, most = TEXTS[name]
    assert await authenticator(app, "é" * most) is not False
    too_long = await _refusal(app, authenticator, "é" * (most + 1))
    assert isinstance(too_long, ConfigError)
    assert "at most" in str(too_long)
    assert len(str(too_long)) < 400
    for bad in BAD.values():
        # Half a character in an argument is refused as such, before a key is made of it.
        assert isinstance(
            await _refusal(app, authenticator, bad),
            InvalidPayload if "templ" in name and "\0" not in bad else ConfigError,
        )


async def test_every_engine_says_the_same(tmp_path: Path) -> None:
    said: dict[str, list[tuple[str, str, str]]] = {}
    for kind in ENGINES:
        (tmp_path / kind).mkdir()
        async with apps(url_of(kind, tmp_path / kind)) as app:
            answers = said[kind] = []
            for name, (authenticator, most) in TEXTS.items():
                for value in (*BAD.values(), "x" * (most + 1), "x" * 1_000_000, "", " ", 5):
                    try:
                        await authenticator(app, value)
                    except HeadraceError as error:
                        answers.append((name, type(error).__name__, str(error)))
                    else:
                        answers.append((name, "kept", repr(value)))
    assert said["memory"] == said["sqlite"] == said["postgres"]
    assert len({name for name, kind, _ in said["memory"] if kind == "ConfigError"}) == len(TEXTS)


async def test_documents_and_tags_have_a_bound(app: App) -> None:
    work = app.tasks["work"]
    just = {"k": "x" * (defaults.MAX_DOCUMENT_BYTES - len('{"k":""}'))}
    for name in ("metadata", "requires", "trace"):
        assert await work._with_options({name: just}).submit()
        with pytest.raises(ConfigError, match=f"{name} must be at most 16384 bytes"):
            work._with_options({name: {"k": just["k"] + "x"}})
        with pytest.raises(ConfigError, match=f"{name} must be JSON: .*surrogate"):
            work._with_options({name: {"k": "\ud83d"}})
    kept = await (await work._with_options({"metadata": {"k": "a\0b"}}).submit()).refresh()
    assert kept.metadata == {"k": "a\0b"}
    tags = [f"{number}" for number in range(defaults.MAX_TAGS)]
    assert (await (await work._with_options({"tags": tags * 2}).submit()).refresh()).tags == tuple(tags)
    with pytest.raises(ConfigError, match="tags are at most 32, not 33"):
        work._with_options({"tags": [*tags, "one more"]})


async def test_payloads_have_a_bound_by_function_and_by_name(app: App) -> None:
    just = "x" * (defaults.MAX_PAYLOAD_BYTES - len('{"value":""}'))
    submits: list[Callable[[Any], Awaitable[Any]]] = [
        app.tasks["work"].submit,
        lambda value: app.submit("work", {"value": value}),
        _by_another_name(app),
        lambda value: app.tasks["work"].map([(None,), (value,)]),
    ]
    for submit in submits:
        assert await submit(just)
        for value, kind in ((just + "x", PayloadTooLarge), ("\ud83d", InvalidPayload), (float("nan"), InvalidPayload)):
            before = await _stored(app)
            with pytest.raises(kind):
                await submit(value)
            assert await _stored(app) == before


def _by_another_name(app: App) -> Callable[[Any], Awaitable[Any]]:
    return lambda value: _ignored(lambda app, value: app.submit("other", {"value": value}))(app, value)


async def test_a_nul_in_a_payload_and_in_a_result_is_kept(app: App) -> None:
    async with app.worker():
        assert await app.tasks["work"].run("a\0b") == "a\0b"


async def test_a_child_is_refused_in_the_handler_that_submits_it(app: App) -> None:
    async with app.worker():
        for name, value in (("customer", "x" * 513), ("dedup", "a\0b"), ("queue", "\ud83d")):
            handle = await app.tasks["parent"].submit(name, value) if value.isascii() else None
            if handle is not None:
                assert name in str(await handle.result(timeout=45))
    assert all(job.task == "parent" for job in (await app.jobs.list()).items)


# Results


@pytest.mark.parametrize("value", [{1, 2}, datetime(2026, 1, 1, tzinfo=UTC), {1: "one"}, float("nan"), "\ud83d", b"x"])
def test_a_result_under_any_refuses_what_a_payload_refuses(value: Any) -> None:
    app = App("memory://")

    @app.task
    async def said(value: Any) -> Any: ...

    @app.task
    async def unsaid(value):  # type: ignore[no-untyped-def]
        ...

    @app.task
    async def within(value: dict[str, Any]) -> dict[str, Any]:
        return value

    cases: tuple[tuple[Any, Any], ...] = (
        (said, value),
        (unsaid, value),
        (within, {"k": value}),
        (said, [[{"k": value}]]),
    )
    for task, passed in cases:
        with pytest.raises(InvalidPayload):
            task.draft(passed)
        with pytest.raises(InvalidResult, match="result"):
            task.handler.encode_result(passed)


@pytest.mark.parametrize("value", [None, {"a": [1, 2.5, "x", None, True]}, (1, (2, [3])), Status.QUEUED, 2**80])
def test_a_result_under_any_keeps_what_a_payload_keeps(value: Any) -> None:
    app = App("memory://")

    @app.task
    async def echo(value: Any) -> Any: ...

    assert echo.handler.encode_result(value) == echo.draft(value).payload_text[len('{"value":') : -1]


async def test_a_handler_that_returns_no_json_fails_as_invalid_result(app: App) -> None:
    @app.task(retry=Retry(0))
    async def odd() -> Any:
        return {1, 2}

    async with app.worker():
        handle = await odd.submit()
        await until(lambda: _has_ended(app, handle.id))
    job = await app.jobs.get(handle.id)
    assert (job.status, job.reason) == ("failed", "invalid_result")
    assert job.error is not None
    assert "set" in job.error.message


async def test_a_process_that_returns_no_json_fails_as_invalid_result() -> None:
    before, app = dict(vars(process_tasks.tasks)), App("memory://")
    app.include(process_tasks.tasks)
    try:
        async with app, app.worker():
            for kind in ("set", "nan", "half", "long"):
                handle = await process_tasks.odd.submit(kind)
                with pytest.raises(JobFailed, match=r"failed \(invalid result\): InvalidResult: odd: result"):
                    await handle.result(timeout=50)
    finally:
        vars(process_tasks.tasks).update(before)


async def _has_ended(app: App, id: Any) -> bool:
    return (await app.jobs.get(id)).ended


async def test_a_result_set_by_hand_is_checked_as_one(app: App) -> None:
    @app.task
    async def count() -> int:
        return 1

    for value in ("many", float("inf"), {1, 2}):
        handle = await count.submit()
        with pytest.raises(InvalidResult):
            await app.jobs.handle(handle.id).resolve(result=value)
        assert (await handle.refresh()).status == "queued"
    assert (await app.jobs.handle(handle.id).resolve(result=3)).result == 3
    assert (await app.jobs.handle((await count.submit()).id).resolve()).result is None
    strange = await _ignored(lambda app, _: app.submit("strange", {}))(app, None)
    with pytest.raises(InvalidResult, match="1048577 bytes, at most 1048576"):
        await app.jobs.handle(strange.id).resolve(result="x" * (defaults.MAX_RESULT_BYTES - 1))
    assert (
        await app.jobs.handle(strange.id).resolve(result="x" * (defaults.MAX_RESULT_BYTES - 2))
    ).status == "completed"


async def test_an_error_set_by_hand_is_cut_as_one(app: App) -> None:
    for error in ("é" * 20_000 + "\0\ud83d", ErrorInfo("E", "x" * 20_000, "t" * 20_000, {"k": "\ud83d"})):
        job = await app.jobs.handle((await app.tasks["work"].submit()).id).resolve(error=error)
        assert job.status == "failed"
        assert job.error is not None
        kept = await app.jobs.get(job.id)
        assert kept.error == job.error
        assert len(str(kept.error.message)) < defaults.MAX_ERROR_BYTES
    with pytest.raises(ConfigError, match="error must be text"):
        await app.jobs.handle((await app.tasks["work"].submit()).id).resolve(error=5)  # type: ignore[arg-type]


# Depth, filters and cursors


def _nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth - 1):
        value = {"k": value}
    return value


@pytest.mark.parametrize("depth", [101, 500, 960, 980, 995, 1010, 5000, 100_000])
async def test_what_is_nested_too_deep_is_refused_everywhere(app: App, depth: int) -> None:
    work, value = app.tasks["work"], _nested(depth)
    doors: dict[str, Callable[[], Awaitable[Any]]] = {
        "payload": lambda: work.submit(_nested(depth - 1)),
        "by name": lambda: _ignored(lambda app, value: app.submit("other", value))(app, value),
        "metadata": lambda: option("metadata")(app, value),
        "requires": lambda: option("requires")(app, value),
        "resolve": lambda: _acted(app, "resolve", result=value),
    }
    for authenticator in doors.values():
        with pytest.raises((ConfigError, InvalidPayload, InvalidResult), match="nested too deep"):
            await authenticator()


async def test_what_is_nested_as_deep_as_it_may_be_is_kept(app: App) -> None:
    work, value, need = app.tasks["work"], _nested(defaults.MAX_JSON_DEPTH), _nested(32)
    handle = await work._with_options({"metadata": value, "requires": need}).submit(
        _nested(defaults.MAX_JSON_DEPTH - 1)
    )
    job = await handle.refresh()
    assert (job.metadata, job.requires, job.payload["value"]) == (value, need, value["k"])
    with pytest.raises(ConfigError, match="requires: nobody looks deeper than 32 levels"):
        work._with_options({"requires": _nested(defaults.MAX_JSON_DEPTH)})
    assert (await app.jobs.handle(handle.id).resolve(result=value)).result == value


async def test_questions_that_make_no_sense_are_refused_alike(app: App) -> None:
    jobs: Any = app.jobs.list
    asked: list[Callable[[], Awaitable[Any]]] = [
        *(
            lambda cursor=cursor: app.jobs.list(cursor=cursor)
            for cursor in ("x", "-1", "1_0", "٣", "9" * 40, "", "\ud83d")
        ),
        *(
            lambda cursor=cursor: app.batches.list(cursor=cursor)
            for cursor in ("x", f"{'9' * 40}-{app.host.new_id()}", "1-2")
        ),
        *(lambda name=name: jobs(**{name: 5}) for name in ("task", "queue", "tag", "text", "schedule")),
        lambda: anext(aiter(app.jobs.logs(app.host.new_id(), attempt=10**30))),
    ]
    for ask in asked:
        with pytest.raises(ConfigError):
            await ask()
    for name in ("task", "queue", "tag", "text", "schedule"):
        for bad in BAD.values():
            assert (await jobs(**{name: bad})).items == ()


# Moments and durations


MOMENTS: dict[str, Door] = {
    "not_before": option("not_before"),
    "not_after": option("not_after"),
    "start": _schedule(days=1, start=...),
    "end": _schedule(days=1, end=...),
}


@pytest.mark.parametrize("name", MOMENTS)
async def test_moments_at_the_ends_of_the_calendar_are_refused_by_name(app: App, name: str) -> None:
    odd = (FIRST, LAST, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), NAIVE, "soon")
    before = await _stored(app)
    for value in odd:
        with pytest.raises(ConfigError, match=f"^{name} must be"):
            await MOMENTS[name](app, value)
    assert await _stored(app) == before
    if name in ("not_before", "not_after"):
        job = await (await MOMENTS[name](app, defaults.MAX_MOMENT)).refresh()
        assert (job.available_at if name == "not_before" else job.not_after) == defaults.MAX_MOMENT
        assert await app.jobs.explain(job.id)
        assert job.to_dict()


HUGE = (10**12, 10**400, 1e300, float("inf"), float("nan"), -1, timedelta.max, 10**5000)


@pytest.mark.parametrize("value", HUGE, ids=lambda value: str(value)[:9] if not isinstance(value, int) else "int")
def test_durations_longer_than_a_century_are_refused_by_name(value: Any) -> None:
    made: dict[str, Callable[[Any], Any]] = {
        "delay": lambda value: apps("memory://").tasks["work"].options(delay=value),
        "timeout": lambda value: apps("memory://").tasks["work"].options(timeout=value),
        "initial": lambda value: Retry(initial=value),
        "cap": lambda value: Retry(cap=value),
        "backoff": lambda value: Retry(backoff=[1, value]),
        "jitter": lambda value: Every(hours=1, jitter=value),
        "Rate: per": lambda value: Rate(1, per=value),
    }
    for name, make in made.items():
        with pytest.raises(ConfigError, match=f"^{name} must be finite, at most a century"):
            make(value)
    for raised in (Snooze, RetryLater):
        with pytest.raises(ConfigError, match=r"^delay must be .* at most a century"):
            raised(value)
    if not isinstance(value, timedelta) and value != 10**12:
        for unit in ("seconds", "minutes", "hours", "days"):
            with pytest.raises(ConfigError, match=r"century|must be a number from 0"):
                Every(**{unit: value})


def test_the_longest_durations_are_kept() -> None:
    assert (
        Retry(cap=MAX_DURATION_SECONDS).cap
        == Snooze(timedelta(seconds=MAX_DURATION_SECONDS)).delay
        == MAX_DURATION_SECONDS
    )
    with pytest.raises(ConfigError, match="century"):
        Every(days=40_000)
    with pytest.raises(ConfigError, match="must be seconds"):
        Snooze("soon")  # type: ignore[arg-type]


def test_counts_have_a_bound() -> None:
    app = App("memory://")
    for value in (defaults.MAX_COUNT + 1, 10**30, 10**5000, sys.maxsize):
        with pytest.raises(ConfigError, match="max_retries must be a whole number from 0 to 1000000000"):
            Retry(value)
        with pytest.raises(ConfigError, match="limit must be a whole number from 1 to"):
            Rate(value, per=1)
        with pytest.raises(ConfigError, match="max_concurrency must be"):
            app.queue("q", max_concurrency=value)
        with pytest.raises(ConfigError, match="priority must be"):
            app.queue("q", priority=-value)
        with pytest.raises(ConfigError, match="priority must be"):
            app.task(priority=value)


# Whatever comes


_TEXT = st.text(st.characters(codec=None), max_size=600) | st.sampled_from(
    ["\0", "\ud83d", "x" * 20_000, "", " ", "\n"]
)
_NUMBER = st.integers() | st.floats() | st.sampled_from([*HUGE[:-1], 10**18, 2**63, True])
_MOMENT = st.datetimes(timezones=st.sampled_from([None, UTC, EAST, WEST])) | st.sampled_from([FIRST, LAST])
_PLAIN: st.SearchStrategy[Any] = _TEXT | _NUMBER | _MOMENT | st.none() | st.binary(max_size=4) | st.builds(object)
_ANY = _PLAIN | st.recursive(
    _PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_PLAIN, inner, max_size=4), max_leaves=6
)
_OPTIONS = ("queue", "priority", "retry", "timeout", "delay", "not_before", "not_after", "dedup", "tags", "metadata")
_MORE = ("on_duplicate", "requires", "customer", "concurrency_key", "after", "after_when", "derived_id", "trace")
_ACTS = ("cancel", "retry", "discard", "resolve")


@pytest.mark.parametrize("kind", ENGINES)
def test_no_door_lets_anything_out_but_a_typed_error(kind: str, tmp_path: Path) -> None:
    app = apps(url_of(kind, tmp_path))

    async def tried(call: Callable[[], Awaitable[Any]]) -> None:
        """What was accepted can be read again; what was refused is not there."""
        before = (await app.stats.counts()).ledger.accepted
        try:
            handle = await call()
        except HeadraceError:
            assert (await app.stats.counts()).ledger.accepted == before
        else:
            job = await app.jobs.get(handle.id)
            assert job.to_dict()["id"] == str(job.id)
            assert str(await app.jobs.explain(job.id))

    async def acted(verb: str, said: dict[str, Any]) -> None:
        handle = await app.tasks["work"].submit()
        try:
            job = await getattr(app.jobs.handle(handle.id), verb)(**said)
        except HeadraceError:
            assert (await handle.refresh()).status == "queued"
        else:
            assert await app.jobs.get(handle.id) == job
            assert await app.jobs.history(handle.id)

    with asyncio.Runner() as loop:

        @settings(max_examples=examples(60), deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(st.dictionaries(st.sampled_from(_OPTIONS + _MORE), _ANY, max_size=3), _ANY)
        def submits(options: dict[str, Any], value: Any) -> None:
            loop.run(tried(lambda: app.tasks["work"]._with_options(options).draft(value).submit()))
            loop.run(tried(lambda: app.submit("other", {"value": value}, **options)))

        @settings(max_examples=examples(60), deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(_ANY, _ANY)
        def others(value: Any, other: Any) -> None:
            loop.run(tried(lambda: app.tasks["keyed"].draft(value).submit()))
            loop.run(tried(lambda: app.tasks["turns"].draft(value).submit()))
            loop.run(tried(lambda: app.submit(value, {"value": other})))
            loop.run(tried(lambda: app.submit("work", value)))

        @settings(max_examples=examples(40), deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(st.sampled_from(_ACTS), _ANY, _ANY)
        def acts(verb: str, by: Any, result: Any) -> None:
            loop.run(acted(verb, {"by": by} | ({"result": result} if verb == "resolve" else {})))
            loop.run(acted("resolve", {"error": by} if by is not None else {"result": result}))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnregisteredTask)
            loop.run(app.__aenter__())
            try:
                submits()
                others()
                acts()
            finally:
                loop.run(app.__aexit__(None, None, None))


@given(_ANY, _ANY, _ANY, _ANY)
def test_no_policy_or_rule_lets_anything_out_but_a_typed_error(one: Any, two: Any, three: Any, four: Any) -> None:
    app = App("memory://")
    makers: list[Callable[[], Any]] = [
        lambda: Retry(one, backoff=two, factor=three, initial=four),
        lambda: Retry(cap=one, retry_on=two, give_up_on=three),
        lambda: Rate(one, per=two, kind=three),
        lambda: Every(seconds=one, minutes=two, jitter=three, start=four),
        lambda: Every(hours=one, days=two, end=three, cap=four),
        lambda: Cron(one, tz=two),
        lambda: Cron("0 2 * * *", start=one, end=two, jitter=three, catch_up=four),
        lambda: Snooze(one),
        lambda: app.queue(one, priority=two, max_concurrency=three, rates=four),
        lambda: app.rate(one, Rate(5, per=1)),
    ]
    for make in makers:
        try:
            made = make()
        except HeadraceError:
            continue
        if isinstance(made, Retry):
            assert made.delay(10**6, 0.5) >= 0
