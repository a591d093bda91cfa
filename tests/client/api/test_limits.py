"""Queues and limits through an App and its workers, on every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Context, Every, Rate, Status
from headrace.client.api.known_names import known_names
from headrace.client.api.tasks import UnregisteredTask
from headrace.client.handle import JobHandle
from headrace.core.job import Job
from headrace.engine.bus import Topic
from headrace.errors import ConfigError, UnknownSetting
from headrace.testing import harness
from headrace.worker.claim import fetcher
from headrace.worker.worker import Worker
from tests.support.apps import ENGINES, busy_worker, url_of
from tests.support.until import until

pytestmark = pytest.mark.every_engine


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


def unhurried(worker: Worker) -> Worker:
    """Let it take its time from a claim to the call: on a busy machine the only permit of an hour would be lost."""
    worker._slots.lead.learn(20.0, worker.host.clock.monotonic())
    return worker


async def at_once(app: App, ids: list[JobHandle[Any]], of: Callable[[Job], object] = lambda job: 0) -> int:
    """How many attempts were under way at the same moment, at most, by their records; of jobs that are alike."""
    marks: dict[object, list[tuple[datetime, int]]] = {}
    for handle in ids:
        job = await handle.refresh()
        for attempt in (await app.jobs.history(job.id)).attempts:
            assert attempt.started_at is not None
            marks.setdefault(of(job), []).extend([(attempt.started_at, 1), (attempt.finished_at, -1)])
    most = 0
    for steps in marks.values():
        now = 0
        for _, step in sorted(steps):  # of what ends and begins at one moment, the end comes first
            now += step
            most = max(most, now)
    return most


async def test_code_limits_tasks_and_queues_across_workers(url: str) -> None:
    app = App(url)
    app.queue("mail", max_concurrency=3)

    @app.task(queue="mail", max_concurrency=2)
    async def send(n: int) -> int:
        await asyncio.sleep(0.02)
        return n

    @app.task(queue="mail")
    async def sort(n: int) -> int:
        await asyncio.sleep(0.02)
        return n

    async with app:
        await app.tasks.announce()
        sends = await send.map([(n,) for n in range(12)])
        sorts = await sort.map([(n,) for n in range(12)])
        async with app.worker(concurrency=5), app.worker(concurrency=5):
            for handle in (*sends, *sorts):
                await handle.result(timeout=30)
        assert await at_once(app, sends) == 2
        assert await at_once(app, [*sends, *sorts]) == 3


async def test_a_key_is_made_of_the_arguments_and_limits_its_own_jobs(url: str) -> None:
    app = App(url)

    @app.task(concurrency_key="customer:{customer_id}", max_per_key=1)
    async def charge(customer_id: int, cents: int = 5) -> None:
        await asyncio.sleep(0.01)

    async with app:
        await app.tasks.announce()
        handles = await charge.map([(n % 3,) for n in range(18)])
        assert (await handles[0].refresh()).concurrency_key == "customer:0"
        by_name = await app.submit("charge", {"customer_id": 0})
        own = await charge.options(concurrency_key="special").submit(0)
        assert (await own.refresh()).concurrency_key == "special"
        async with app.worker(concurrency=10):
            for handle in (*handles, by_name, own):
                await handle.result(timeout=30)
        assert await at_once(app, [*handles, by_name, own], lambda job: job.concurrency_key) == 1
        assert await at_once(app, [*handles, by_name, own]) > 1


async def test_a_noisy_key_does_not_keep_others_from_their_turn(url: str) -> None:
    app = App(url)
    ran: list[str] = []

    @app.task(concurrency_key="{who}", max_per_key=5)
    async def work(who: str) -> None:
        ran.append(who)

    async with app:
        await app.tasks.announce()
        await work.map([("noisy",)] * 40)
        handles = await work.map([("b",), ("c",), ("b",), ("c",)])
        async with app.worker(concurrency=1):
            for handle in handles:
                await handle.result(timeout=30)
        assert max(place for place, who in enumerate(ran) if who != "noisy") < 10, ran


async def test_a_rate_keeps_jobs_waiting_not_failing() -> None:
    app = App("memory://")
    app.rate("stripe", Rate(2, per=60))

    @app.task(rates=["stripe"])
    async def charge() -> None: ...

    async with harness(app) as h:
        await app.tasks.announce()
        await charge.map([()] * 5)
        await h.drain()
        assert (await app.stats.counts()).statuses == {Status.COMPLETED: 2, Status.QUEUED: 3}
        await h.advance(minutes=1)
        assert (await app.stats.counts()).statuses == {Status.COMPLETED: 4, Status.QUEUED: 1}


async def test_a_worker_waits_for_the_next_permit(url: str) -> None:
    app = App(url)
    app.rate("slow", Rate(2, per=timedelta(seconds=0.6), kind="bucket"))

    @app.task(rates=["slow"])
    async def work() -> None: ...

    async with app:
        await app.tasks.announce()
        handles = await work.map([()] * 4)
        async with app.worker():
            for handle in handles:
                await handle.result(timeout=30)
        starts = sorted([(await handle.refresh()).assigned_at for handle in handles], key=str)
        assert starts[0] is not None
        assert starts[3] is not None
        assert starts[3] - starts[0] >= timedelta(seconds=0.59)


async def test_what_is_set_while_running_goes_first_until_it_is_reset(url: str) -> None:
    app = App(url)
    app.queue("mail", priority=10, max_concurrency=2)
    app.rate("api", Rate(5, per=60))

    @app.task(queue="mail", max_concurrency=4, rates=["api"])
    async def send() -> None: ...

    async with app:
        await app.tasks.announce()
        (queue,) = await app.queues.list()
        assert (queue.name, queue.priority, queue.max_concurrency, queue.paused) == ("mail", 10, 2, False)
        (limit,) = await app.limits.list()
        assert (limit.task, limit.max_concurrency, limit.rates, limit.live) == ("send", 4, ("api",), False)
        assert await app.rates.list() == {"api": Rate(5, per=60)}

        await app.queues.set("mail", max_concurrency=7)
        await app.limits.set("send", max_per_key=3)
        await app.rates.set("api", Rate(9, per=1))
        await app.queues.pause("mail")
        await app.tasks.announce()  # another worker starts: what the code says does not undo it
        (queue,) = await app.queues.list()
        assert (queue.priority, queue.max_concurrency, queue.paused) == (10, 7, True)
        (limit,) = await app.limits.list()
        assert (limit.max_concurrency, limit.max_per_key, limit.live) == (4, 3, True)
        assert await app.rates.list() == {"api": Rate(9, per=1)}

        await app.queues.reset("mail")
        await app.limits.reset("send")
        await app.rates.reset("api")
        (queue,) = await app.queues.list()
        assert (queue.priority, queue.max_concurrency, queue.paused) == (10, 2, False)
        (limit,) = await app.limits.list()
        assert (limit.max_concurrency, limit.max_per_key, limit.live) == (4, None, False)
        assert await app.rates.list() == {"api": Rate(5, per=60)}


async def test_a_limit_that_leaves_the_code_is_gone(url: str) -> None:
    first = App(url)
    first.task(name="work", max_concurrency=1)(_work)
    async with first:
        await first.tasks.announce()
        assert [limit.task for limit in await first.limits.list()] == ["work"]
        second = App(url) if not url.startswith("memory") else first
        if second is first:
            return  # a memory store belongs to one App
        second.task(name="work")(_work)
        async with second:
            await second.tasks.announce()
            assert await second.limits.list() == []


async def _work() -> None: ...


async def test_what_code_once_said_is_forgotten_and_a_worker_that_still_says_it_writes_it_again(url: str) -> None:
    app = App(url)
    app.queue("mail", priority=10, max_concurrency=1)
    app.rate("api", Rate(1, per=3600))
    app.task(name="send", queue="mail", max_concurrency=1, rates=["api"])(_work)
    async with app:
        await app.tasks.announce()
        await app.queues.set("mail", max_concurrency=7)
        await app.queues.pause("mail")
        await app.limits.set("send", max_per_key=3)
        await app.rates.set("api", Rate(9, per=1))
        await app.queues.forget("mail")
        await app.limits.forget("send")
        await app.rates.forget("api")
        assert (await app.queues.list(), await app.limits.list(), await app.rates.list()) == ([], [], {})
        for again in (app.queues.forget("mail"), app.limits.forget("send"), app.rates.forget("api")):
            with pytest.raises(
                UnknownSetting, match=r"nothing is stored about .* '(mail|send|api)': headrace \w+ lists"
            ):
                await again
        await app.tasks.announce()
        (queue,) = await app.queues.list()
        assert (queue.priority, queue.max_concurrency, queue.paused) == (10, 1, False)
        (limit,) = await app.limits.list()
        assert (limit.max_concurrency, limit.max_per_key, limit.rates, limit.live) == (1, None, ("api",), False)
        assert await app.rates.list() == {"api": Rate(1, per=3600)}


@pytest.mark.parametrize("of", ["queue", "limit", "rate"])
async def test_a_forgotten_limit_lets_go_at_once_of_those_who_waited(url: str, of: str) -> None:
    app = App(url)
    gate = asyncio.Event()
    if of == "queue":
        app.queue("mail", max_concurrency=1)
    if of == "rate":
        app.rate("api", Rate(1, per=3600))

    async def wait() -> None:
        await gate.wait()

    limits: dict[str, dict[str, Any]] = {"limit": {"max_concurrency": 1}, "rate": {"rates": ["api"]}, "queue": {}}
    task = app.task(queue="mail", **limits[of])(wait)
    async with app:
        await app.tasks.announce()
        handles = await task.map([()] * 3)
        async with unhurried(app.worker(concurrency=5)) as worker:
            await until(lambda: worker.stats.busy == 1)
            assert "ready" not in (await handles[-1].explain()).codes
            await {"queue": app.queues.forget, "limit": app.limits.forget, "rate": app.rates.forget}[of](
                {"queue": "mail", "limit": "wait", "rate": "api"}[of]
            )
            await until(lambda: worker.stats.busy == 3)
            gate.set()
            for handle in handles:
                await handle.result(timeout=30)


@pytest.mark.parametrize("key", ["queue:mail", "limit:send", "rate:api"])
async def test_a_setting_of_another_version_stops_what_it_names_and_says_so(
    url: str, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(url)
    kind, name = key.split(":")
    send = app.task(name="send", queue="mail", rates=["api"])(_work)
    other = app.task(name="other")(_work)
    async with app:
        await app.session.engine.documents.put_setting(key, '{"max_concurrency":"few"}', 0)
        await app.queues.set("default", priority=1)
        async with app.worker():
            stopped = await send.submit()
            await (await other.submit()).result(timeout=30)
            await app.queues.set("default", priority=2)  # all settings are read anew
            await (await other.submit()).result(timeout=30)
            found = await stopped.explain()
            assert ("setting_unreadable" in found.codes, stopped.status) == (True, Status.QUEUED)
            said = [record.message for record in caplog.records if record.name == "headrace.limits"]
            assert len(said) == 1
            assert f"the setting {key!r} is none that this version" in said[0]
            group = "limits" if kind == "limit" else f"{kind}s"
            assert said[0].endswith(f"headrace {group} forget {name}")
            [check] = [check for check in await app.store.doctor() if check.name == "settings"]
            assert (check.level, key in check.message, f"headrace {group} forget {name}" in (check.remedy or "")) == (
                "warn",
                True,
                True,
            )
            queues = {queue.name: queue.unreadable for queue in await app.queues.list()}
            assert ([name for name, why in queues.items() if why] == ["mail"]) == (kind == "queue")
            assert [limit.task for limit in await app.limits.list() if limit.unreadable] == ["send"] * (kind == "limit")
            assert await app.rates.list() == {}
            await {"queue": app.queues.forget, "limit": app.limits.forget, "rate": app.rates.forget}[kind](name)
            await stopped.result(timeout=30)


async def test_what_cannot_be_read_is_not_written_but_may_be_put_right(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(url)
    app.queue("mail", priority=3)
    app.queue("post", priority=3)
    async with app:
        mail, post = '{"code":{"priority":9},"max_concurrency":{"night":9}}', "[]"
        await app.session.engine.documents.put_setting("queue:mail", mail, 0)
        await app.session.engine.documents.put_setting("queue:post", post, 0)
        for name in ("mail", "post"):
            with pytest.raises(ConfigError, match=f"'queue:{name}' is none that this version of headrace can read"):
                await app.queues.pause(name)
        await app.tasks.announce()  # a worker that starts goes on
        assert caplog.text.count("is none that this version") == 2
        assert [setting.value for setting in await app.session.engine.documents.settings("queue:")] == [mail, post]
        await app.queues.set("mail", max_concurrency=2)
        (mended,) = [queue for queue in await app.queues.list() if queue.name == "mail"]
        assert (mended.priority, mended.max_concurrency, mended.unreadable) == (9, 2, None)


async def test_names_are_known_by_jobs_workers_schedules_and_code(url: str) -> None:
    app = App(url)
    app.queue("declared")
    app.rate("defined", Rate(1, per=1))
    app.queue("paced", rates=["of a queue"])
    work = app.task(name="work", aliases=["worked"], queue="mail", rates=["of a task"])(_work)
    async with app:
        assert await known_names(app, "queue") == {"default", "declared", "paced", "mail"}
        assert await known_names(app, "task") == {"work", "worked"}
        assert await known_names(app, "rate") == {"defined", "of a queue", "of a task"}
        await app.session.engine.documents.put_setting("queue:once", '{"code":{"priority":3}}', 0)
        await app.session.engine.documents.put_setting(
            "task:other", '{"name":"other","queue":"of another","aliases":["older"]}', 0
        )
        await app.schedules.set("nightly", Every(days=1), work.options(queue="of a schedule").draft())
        with pytest.warns(UnregisteredTask):
            await app.submit("unheard", {}, queue="of a job")
        await busy_worker(app.session.engine, "of a worker")
        await app.limits.set("tpyo", max_concurrency=1, rates=["set while running"])
        await app.queues.pause("tpyo")
        await app.rates.set("tpyo", Rate(1, per=1))
        queues = {"default", "declared", "paced", "mail", "once", "of another", "of a schedule", "of a job"}
        assert await known_names(app, "queue") == queues
        assert await known_names(app, "task") == {"work", "worked", "other", "older", "unheard", "of a worker"}
        assert await known_names(app, "rate") == {"defined", "of a queue", "of a task", "set while running"}


async def test_a_raised_limit_takes_effect_without_a_restart(url: str) -> None:
    app = App(url)
    gate = asyncio.Event()

    @app.task(max_concurrency=1)
    async def wait(ctx: Context) -> None:
        await gate.wait()

    async with app:
        await app.tasks.announce()
        handles = await wait.map([()] * 3)
        async with app.worker(concurrency=5) as worker:
            await until(lambda: worker.stats.busy == 1)
            await app.limits.set("wait", max_concurrency=3)
            await until(lambda: worker.stats.busy == 3)
            gate.set()
            for handle in handles:
                await handle.result(timeout=30)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"max_concurrency": "5"}, "max_concurrency"),
        ({"max_per_key": -1}, "max_per_key"),
        ({"rates": "stripe"}, "rates"),
        ({"rates": [""]}, "rates"),
        ({"concurrency_key": "{nobody}"}, "concurrency_key"),
        ({"concurrency_key": ""}, "concurrency_key"),
    ],
)
def test_what_makes_no_sense_is_refused_at_decoration(options: dict[str, Any], named: str) -> None:
    app = App("memory://")
    with pytest.raises(ConfigError, match=named):
        app.task(**options)(_work)


def test_queues_and_rates_are_checked_where_they_are_said() -> None:
    app = App("memory://")
    with pytest.raises(ConfigError, match="max_concurrency"):
        app.queue("mail", max_concurrency=0)
    with pytest.raises(ConfigError, match="priority"):
        app.queue("mail", priority=True)
    with pytest.raises(ConfigError, match="name"):
        app.queue("")
    with pytest.raises(ConfigError, match="Rate"):
        app.rate("api", 5)  # type: ignore[arg-type]


async def test_a_key_that_is_too_long_is_refused(url: str) -> None:
    app = App(url)

    @app.task(concurrency_key="{who}")
    async def work(who: str) -> None: ...

    async with app:
        with pytest.raises(ConfigError, match="512"):
            await work.submit("x" * 513)
        await work.submit("x" * 512)


async def test_explaining_names_who_holds_a_limit_and_the_next_permit(url: str) -> None:
    app = App(url)
    app.rate("api", Rate(1, per=3600))
    gate = asyncio.Event()

    @app.task(max_concurrency=1)
    async def wait() -> None:
        await gate.wait()

    @app.task(rates=["api"])
    async def call() -> None: ...

    async with app:
        await app.tasks.announce()
        first, second = await wait.map([(), ()])
        done, later = await call.map([(), ()])
        async with unhurried(app.worker()) as worker:
            await done.result(timeout=30)
            await until(lambda: worker.stats.busy == 1)
            found = await second.explain()
            assert ("limit_full" in found.codes, str(first.id) in found) == (True, True)
            waits = await later.explain()
            assert "rate_spent" in waits.codes
            gate.set()


async def test_explaining_finds_who_holds_a_key_among_very_many_who_hold_others() -> None:
    app = App("memory://")
    gate = asyncio.Event()

    @app.task(concurrency_key="{who}")
    async def wait(who: str) -> None:
        await gate.wait()

    async with app:
        await app.tasks.announce()
        first, second = await wait.map([("anna",), ("anna",)])
        handles = await wait.map([(f"customer {number}",) for number in range(1100)])
        async with app.worker(concurrency=1200) as worker:
            await until(lambda: worker.stats.busy == 1101)
            found = await second.explain()
            [full] = [fact for fact in found.facts if fact.code == "limit_full"]
            assert (full.data["name"], full.data["held"], full.data["by"]) == ("anna", 1, [first.id])
            gate.set()
            for handle in (second, *handles):
                await handle.result(timeout=30)


async def test_a_rate_that_nobody_defined_is_told_of(url: str, caplog: pytest.LogCaptureFixture) -> None:
    app = App(url)
    app.rate("stripe", Rate(1, per=60))
    app.queue("mail", rates=["strpe"])

    @app.task(rates=["stripe", "strpe"])
    async def charge() -> None: ...

    async with app:
        await app.tasks.announce()
        assert "nobody has defined the rate 'strpe' that queue 'mail' and task 'charge' must keep to" in caplog.text
        assert "'stripe'" not in caplog.text
        [check] = [check for check in await app.store.doctor() if check.name == "rates"]
        assert (check.level, "'strpe'" in check.message) == ("warn", True)
        await app.rates.set("strpe", Rate(1, per=60))
        caplog.clear()
        await app.tasks.announce()
        assert caplog.text == ""
        assert [check for check in await app.store.doctor() if check.name == "rates"] == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_jobs_stored_under_the_old_name_of_a_task_are_limited_as_well(kind: str, tmp_path: Path) -> None:
    before, after = App(url_of(kind, tmp_path)), App(url_of(kind, tmp_path))
    old = before.task(name="old")(_nap)
    after.task(name="new", aliases=["old"], max_concurrency=1)(_nap)
    async with before, after:
        handles = await old.map([()] * 5)
        async with after.worker(concurrency=5):
            for handle in handles:
                await handle.result(timeout=30)
        assert await at_once(after, handles) == 1


async def _nap() -> None:
    await asyncio.sleep(0.05)


async def test_a_slot_that_becomes_free_is_told_to_whoever_waits_for_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers that share nothing but a limit; neither looks again by itself within the time of this test."""
    monkeypatch.setattr(fetcher, "POLL_FIRST_SECONDS", 900.0)
    monkeypatch.setattr(fetcher, "POLL_MAX_SECONDS", 900.0)
    begun, gate = asyncio.Event(), asyncio.Event()

    async def hold() -> str:
        begun.set()
        await gate.wait()
        return "at last"

    apps = [App(url)] if url == "memory://" else [App(url), App(url)]
    tasks = [app.task(max_concurrency=1)(hold) for app in apps]
    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app)
        await stack.enter_async_context(apps[0].worker(queues=["here"]))
        await stack.enter_async_context(apps[-1].worker(queues=["there"]))
        ahead = await tasks[0].options(queue="here").submit()
        await asyncio.wait_for(begun.wait(), 30)
        behind = await tasks[-1].options(queue="there").submit()
        await until(lambda: apps[0].session.engine.bus.wanted(Topic.FREED))
        gate.set()
        assert await behind.result(timeout=30) == "at last"
        await ahead.result(timeout=30)


async def test_a_queue_is_set_by_customer_and_its_workers_take_all(url: str) -> None:
    app = App(url)

    @app.task(queue="gpu")
    async def draw(n: int) -> int:
        return n

    async with app:
        before = [await draw.options(customer=one).submit(n) for n, one in enumerate(("a", "b", None))]
        await app.queues.set("gpu", by_customer=True)
        assert await app.session.engine.jobs.realign() == 0, "those in line have moved already"
        after = [await draw.options(customer=one).submit(n) for n, one in enumerate(("a", "c"))]
        assert [(one.name, one.by_customer) for one in await app.queues.list() if one.name == "gpu"] == [("gpu", True)]
        async with app.worker(concurrency=2, queues=["gpu"]):
            for job in (*before, *after):
                await job.result(timeout=50)
        await app.queues.set("gpu", by_customer=False)
        assert [one.by_customer for one in await app.queues.list() if one.name == "gpu"] == [False]
