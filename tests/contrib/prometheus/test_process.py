"""What a process tells of its own workers."""

from __future__ import annotations

import asyncio
import random

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headrace import App, Context, Retry, Snooze
from headrace.contrib.prometheus import HeadraceCollector
from headrace.contrib.prometheus.process import _cumulated
from headrace.core.stats.histogram import Histogram
from tests.contrib.prometheus.pages import samples, value
from tests.support.until import until


class Shop:
    """An App with tasks that end in every way, and its page."""

    def __init__(self) -> None:
        self.app, self.go = App("memory://"), asyncio.Event()

        @self.app.task(queue="mail")
        async def send(n: int) -> int:
            return n

        @self.app.task(retry=Retry(max_retries=1, backoff=[0.0], jitter=False))
        async def boom() -> None:
            raise ValueError("no")

        @self.app.task
        async def later(ctx: Context) -> None:
            if ctx.attempt == 1:
                raise Snooze(0)

        @self.app.task
        async def wait() -> None:
            await self.go.wait()

        self.send, self.boom, self.later, self.wait = send, boom, later, wait
        self.registry = CollectorRegistry()

    def measure(self) -> None:
        self.registry.register(HeadraceCollector(self.app, store=False))

    def page(self) -> str:
        return generate_latest(self.registry).decode()

    def value(self, name: str, **labels: str) -> float | None:
        return value(self.page(), name, **labels)


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_attempts_are_counted_by_task_queue_and_outcome(shop: Shop) -> None:
    shop.measure()
    async with shop.app as app:
        jobs = [*await shop.send.map([(n,) for n in range(7)]), await shop.later.submit(), await shop.boom.submit()]
        jobs.append(await shop.send.options(queue="bulk").submit(1))
        async with app.worker():
            await until(
                lambda: shop.value("headrace_attempts_total", task="send", queue="mail", outcome="completed") == 7
            )
            await until(lambda: shop.value("headrace_dead_letters_total", task="boom", queue="default") == 1)
            await until(
                lambda: shop.value("headrace_attempts_total", task="later", queue="default", outcome="completed")
            )
    page = shop.page()
    assert value(page, "headrace_attempts_total", task="boom", queue="default", outcome="failed") == 2
    assert value(page, "headrace_retries_total", task="boom", queue="default") == 1
    assert value(page, "headrace_attempts_total", task="later", queue="default", outcome="snoozed") == 1
    assert value(page, "headrace_attempts_total", task="send", queue="bulk", outcome="completed") == 1
    for name in ("headrace_waiting_seconds", "headrace_running_seconds"):
        assert value(page, f"{name}_count", task="send", queue="mail") == 7
        assert value(page, f"{name}_bucket", task="send", queue="mail", le="+Inf") == 7
        assert value(page, f"{name}_count", task="boom", queue="default") == 2
        assert (value(page, f"{name}_sum", task="send", queue="mail") or 0) >= 0


async def test_counts_go_on_when_workers_come_and_go(shop: Shop) -> None:
    shop.measure()
    async with shop.app as app:
        for round in (1, 2, 3):
            job = await shop.send.submit(round)
            async with app.worker():
                await job.result(timeout=60)
            assert shop.value("headrace_attempts_total", task="send", queue="mail", outcome="completed") == round


async def test_a_worker_that_was_there_before_is_measured_too(shop: Shop) -> None:
    async with shop.app as app, app.worker(concurrency=3):
        shop.measure()
        await shop.wait.submit()
        await until(lambda: shop.value("headrace_jobs_running", task="wait", queue="default") == 1)
        page = shop.page()
        assert value(page, "headrace_worker_concurrency") == 3
        assert value(page, "headrace_worker_busy") == 1
        assert value(page, "headrace_worker_healthy") == 1
        assert value(page, "headrace_worker_stale_total") == 0
        [worker] = app.workers.local.all()
        assert value(page, "headrace_worker_info", worker=str(worker.id), version=worker.version) == 1
        shop.go.set()
        await until(lambda: shop.value("headrace_jobs_running", task="wait", queue="default") == 0)
        await until(
            lambda: shop.value("headrace_attempts_total", task="wait", queue="default", outcome="completed") == 1
        )


async def test_tasks_are_told_of_before_they_have_run(shop: Shop) -> None:
    shop.measure()
    assert "headrace_worker_healthy" not in samples(shop.page())  # there is none
    async with shop.app as app, app.worker():
        page = samples(shop.page())
        tasks = {dict(labels)["task"]: value for labels, value in page["headrace_dead_letters_total"].items()}
        assert tasks == dict.fromkeys(["send", "boom", "later", "wait"], 0)
        assert "headrace_waiting_seconds_count" not in page  # a histogram has many series, and has them when it is used


def test_buckets_count_as_prometheus_does() -> None:
    dice = random.Random(7)
    values = [dice.uniform(0, 10 ** dice.uniform(-4, 6)) for _ in range(2000)]
    measured = Histogram({})
    for one in values:
        measured.add(one)
    buckets = _cumulated(measured)
    ends, counts = [end for end, _ in buckets], [count for _, count in buckets]
    assert ends[:5] == ["0.001", "0.00237", "0.00422", "0.01", "0.0237"]
    assert ends[-4:] == ["1000.0", "10000.0", "100000.0", "+Inf"]
    assert counts[-1] == 2000
    for end, count in buckets[:-1]:  # what a bucket is called is cut to three digits
        least, most = (sum(one <= float(end) * share for one in values) for share in (0.999, 1.001))
        assert least <= count <= most
