"""A backoff that is a function: called in the process that saw the failure, and never in the way of a job's end."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import App, GiveUp, Job, JobHandle, Retry, RetryLater, Status
from headrace.errors import ConfigError, HandlerFailed
from headrace.testing import harness
from headrace.worker.execution.context import Context
from headrace.worker.execution.hooks import CallNext
from tests.support.apps import ENGINES, url_of
from tests.support.programs import process_backoff
from tests.support.until import until


@pytest.fixture(params=ENGINES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> App:
    """An App on an empty store of each kind."""
    return App(url_of(request.param, tmp_path))


async def waits(app: App, job: JobHandle[Any], charged: int = 1) -> float:
    """Seconds that the job waits for its next attempt, once it does."""

    async def stands() -> bool:
        now = await job.refresh()
        return now.status is Status.RETRYING and now.charged == charged

    await until(stands)
    attempt = (await app.jobs.history(job.id)).attempts[-1]
    assert attempt.retry_at is not None
    assert attempt.finished_at is not None
    return (attempt.retry_at - attempt.finished_at).total_seconds()


async def ends(job: JobHandle[Any]) -> Job:
    """The job once it ended."""

    async def over() -> bool:
        return (await job.refresh()).ended

    await until(over)
    return await job.refresh()


async def test_it_is_called_with_the_number_of_the_retry_and_the_error(app: App) -> None:
    seen: list[tuple[int, str]] = []

    def asked(retry: int, error: Exception) -> float | timedelta:
        seen.append((retry, repr(error)))
        return 5000 * retry if retry < 2 else timedelta(hours=2)

    @app.task(retry=Retry(2, backoff=asked, cap=1))
    async def fails(word: str) -> None:
        raise ValueError(word)

    @app.task(retry=Retry(2, backoff=asked))
    def fails_in_thread(word: str) -> None:
        raise ValueError(word)

    async with app, app.worker():
        job, other = await fails.submit("a"), await fails_in_thread.submit("b")
        assert await waits(app, job) == 5000, "neither cap nor jitter has a say"
        assert await waits(app, other) == 5000
        await app.jobs.handle(job.id).run_now()
        assert await waits(app, job, charged=2) == 7200
        await app.jobs.handle(job.id).run_now()
        assert (await ends(job)).status is Status.FAILED
        stored = (await job.refresh()).retry
    assert sorted(seen) == [(1, "ValueError('a')"), (1, "ValueError('b')"), (2, "ValueError('a')")]
    assert (stored.by_function, stored.backoff) == (True, "exponential"), "which holds for whoever cannot call it"


async def test_it_is_asked_only_if_another_attempt_follows(app: App) -> None:
    called: list[str] = []

    def asked(retry: int, error: Exception) -> float:
        called.append(str(error))
        return 5000

    policy = Retry(1, backoff=asked, give_up_on=[KeyError])

    @app.task(retry=policy)
    async def raises(how: str) -> None:
        raise {"key": KeyError("key"), "give": GiveUp("give"), "later": RetryLater(3000, "later")}[how]

    @app.task(retry=Retry(0, backoff=asked))
    async def once() -> None:
        raise ValueError("once")

    async with app, app.worker():
        gone = [await raises.submit("key"), await raises.submit("give"), await once.submit()]
        assert [(await ends(job)).status for job in gone] == [Status.FAILED] * 3
        assert await waits(app, await raises.submit("later")) == 3000
    assert called == []


async def test_a_job_with_a_policy_of_its_own_is_left_to_that(app: App) -> None:
    def asked(retry: int, error: Exception) -> float:
        return 5000

    @app.task(retry=Retry(backoff=asked))
    async def fails() -> None:
        raise ValueError

    async with app, app.worker():
        fixed = await fails.options(retry=Retry(backoff=[3000], jitter=False)).submit()
        more = await fails.options(retry=Retry(9, backoff=asked)).submit()
        assert (await waits(app, fixed), await waits(app, more)) == (3000, 5000)
        named = await app.submit("fails", {})
        assert await waits(app, named) == 5000
        with pytest.raises(ConfigError, match="belongs to the task"):
            fails.options(retry=Retry(backoff=lambda retry, error: 1))
        with pytest.raises(ConfigError, match="belongs to the task"):
            await app.submit("unknown", {}, retry=Retry(backoff=asked))


async def test_a_default_of_the_app_is_a_policy_of_its_tasks() -> None:
    app = App("memory://", defaults={"retry": Retry(backoff=lambda retry, error: 4000 + retry)})

    @app.task
    async def fails() -> None:
        raise ValueError

    async with app, app.worker():
        assert await waits(app, await fails.submit()) == 4001


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda retry, error: 1 / 0, "ZeroDivisionError"),
        (lambda retry, error: -1, "not negative"),
        (lambda retry, error: float("nan"), "must be finite"),
        (lambda retry, error: float("inf"), "must be finite"),
        (lambda retry, error: None, "not None"),
        (lambda retry, error: exec("raise SystemExit"), "SystemExit"),
    ],
)
async def test_one_that_fails_leaves_the_exponential_backoff(
    wrong: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("memory://")

    @app.task(retry=Retry(backoff=wrong, initial=3000, cap=9000, jitter=False))
    async def fails() -> None:
        raise ValueError

    with caplog.at_level(logging.ERROR, "headrace.worker"):
        async with app, app.worker():
            job = await fails.submit()
            assert await waits(app, job) == 3000
    [record] = [one for one in caplog.records if "backoff function failed" in one.getMessage()]
    assert "fails" in record.getMessage()
    assert said in caplog.text
    assert (record.exc_info is None) is (said in record.getMessage()), (
        "a traceback of what it raised, and of nothing else"
    )


async def test_a_time_out_is_a_timeout_error(app: App) -> None:
    seen: list[Exception] = []

    def asked(retry: int, error: Exception) -> float:
        seen.append(error)
        return 5000

    @app.task(retry=Retry(backoff=asked), timeout=0.05)
    async def slow() -> None:
        await asyncio.Event().wait()

    async with app, app.worker():
        assert await waits(app, await slow.submit()) == 5000
    assert [type(one) for one in seen] == [TimeoutError]


async def test_what_is_no_exception_is_told_by_its_name() -> None:
    app, seen = App("memory://"), list[Exception]()

    def asked(retry: int, error: Exception) -> float:
        seen.append(error)
        return 5000

    @app.task(retry=Retry(backoff=asked))
    async def leaves(how: str) -> None:
        raise SystemExit(3) if how == "exit" else asyncio.CancelledError

    async with app, app.worker():
        assert await waits(app, await leaves.submit("exit")) == 5000
        assert await waits(app, await leaves.submit("cancel")) == 5000
    assert [str(one) for one in seen] == ["SystemExit: 3", "CancelledError: the handler cancelled itself"]
    assert all(isinstance(one, HandlerFailed) for one in seen)


async def test_each_job_of_a_bulk_call_has_its_own(app: App) -> None:
    def asked(retry: int, error: Exception) -> float:
        return 1000 * int(str(error))

    @app.bulk(size=3, wait=0.01, retry=Retry(backoff=asked))
    async def index(items: list[int]) -> list[int | Exception]:
        return [ValueError(item) if item else item for item in items]

    async with app, app.worker():
        jobs = await index.map([(0,), (1,), (2,)])
        assert await jobs[0].result(timeout=45) == 0
        assert [await waits(app, job) for job in jobs[1:]] == [1000, 2000]


@pytest.mark.parametrize("around", [False, True], ids=["plain", "in-middleware"])
async def test_in_a_child_process_it_is_called_there_with_the_error_itself(around: bool) -> None:
    app = process_backoff.app

    async def passes(ctx: Context, call_next: CallNext) -> Any:
        return await call_next()

    process_backoff.busy.handler.surround((passes,) if around else ())
    try:
        async with app, app.worker():
            assert await waits(app, await process_backoff.busy.submit("raises")) == 1007
            assert await waits(app, await process_backoff.busy.submit("dies")) == 1000 + len(HandlerFailed.__name__)
    finally:
        process_backoff.busy.handler.surround(())


async def test_the_harness_obeys_it() -> None:
    app = App("sqlite:///never-touched.db")
    begun = list[datetime]()

    @app.task(retry=Retry(2, backoff=lambda retry, error: 3600 * retry))
    def flaky() -> str:
        begun.append(h.now)
        if len(begun) < 3:
            raise ConnectionError
        return "done"

    async with harness(app, now=datetime(2026, 1, 1, tzinfo=UTC)) as h:
        job = await flaky.submit()
        await h.drain()
        await h.advance(hours=3)
        assert await job.result() == "done"
    assert [one - begun[0] for one in begun] == [timedelta(hours=0), timedelta(hours=1), timedelta(hours=3)]
