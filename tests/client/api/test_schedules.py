"""Schedules and continuous tasks through an App and its workers, on every engine."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace import App, Context, Continuous, Cron, Every, Status
from headrace.core.job import Job
from headrace.core.status import Outcome
from headrace.errors import ConfigError, GiveUp, UnknownSchedule
from headrace.testing import FakeClock, harness
from tests.support.apps import ENGINES, Sums, url_of
from tests.support.until import until


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


async def jobs_of(app: App, name: str, *status: Status) -> list[Job]:
    page = await app.jobs.list(schedule=name, status=status, limit=1000)
    return list(page.items)


async def at_once(app: App, name: str) -> int:
    """How many attempts of a schedule's jobs were under way at the same moment, at most, by their records."""
    marks: list[tuple[datetime, int]] = []
    for job in await jobs_of(app, name):
        for attempt in (await app.jobs.history(job.id)).attempts:
            if attempt.started_at is not None and attempt.finished_at is not None:
                marks += [(attempt.started_at, 1), (attempt.finished_at, -1)]
    most = now = 0
    for _, step in sorted(marks):  # of what ends and begins at one moment, the end comes first
        now += step
        most = max(most, now)
    return most


async def becomes(app: App, name: str, state: str) -> None:
    """Wait until a schedule stands so; a worker tells the store of its code when it has started."""

    async def check() -> bool:
        return any((one.name, one.state) == (name, state) for one in await app.schedules.list())

    await until(check, what=f"schedule {name} {state}")


# Continuous tasks


class Poller:
    """An App whose continuous task counts how many of it run at once."""

    def __init__(self, url: str, *, instances: int = 2, together: bool = False) -> None:
        """``together``: each run waits until so many have been at it at once."""
        self.app = App(url)
        self.runs = self.now = self.most = 0

        @self.app.task(continuous=Continuous(instances=instances, cool_down=0.2))
        async def poll() -> int:
            self.now += 1
            self.most = max(self.most, self.now)
            if together:
                await until(lambda: self.most >= instances)
            await asyncio.sleep(0.01)
            self.now -= 1
            self.runs += 1
            return self.runs

        self.poll = poll


async def test_a_continuous_task_runs_again_and_again_so_many_at_once(url: str) -> None:
    poller = Poller(url, together=True)
    app = poller.app
    async with app, app.worker(concurrency=3), app.worker(concurrency=3):
        await until(lambda: poller.runs >= 40)
        (info,) = await app.schedules.list()
        assert (info.name, info.state, info.next_fire, info.source) == ("poll", "active", None, "code")
        assert info.rule == Continuous(instances=2, cool_down=0.2)
        paused = await app.schedules.pause("poll")
        assert paused.state == "paused"

        async def over() -> bool:
            return not [job for job in await jobs_of(app, "poll") if not job.ended]

        await until(over)

        async def counted() -> bool:
            # Whoever had read the schedule just before the pause may still have begun one more run.
            return (await app.stats.counts()).statuses[Status.COMPLETED] == poller.runs

        await until(counted)
        done = poller.runs
        await app.schedules.resume("poll")
        await until(lambda: poller.runs >= done + 4)
    assert poller.most == 2
    async with app:
        assert await at_once(app, "poll") == 2


async def test_a_run_that_fails_is_followed_after_the_cool_down(url: str) -> None:
    app, runs = App(url), list[int]()

    @app.task(continuous=Continuous(cool_down=0.3))
    async def poll(ctx: Context) -> None:
        runs.append(ctx.attempt)
        if len(runs) == 3:
            raise GiveUp("never mind")
        if len(runs) < 6:
            raise ValueError("not now")

    async with app, app.worker():
        await until(lambda: len(runs) >= 8)
        await app.schedules.pause("poll")
        moments: list[tuple[datetime, Outcome]] = []
        for job in await jobs_of(app, "poll"):
            for one in (await app.jobs.history(job.id)).attempts:
                assert one.started_at is not None
                moments.append((one.started_at, one.outcome))
        moments.sort()
        gaps = [(later - earlier).total_seconds() for (earlier, _), (later, _) in pairwise(moments)]
        assert [outcome for _, outcome in moments[:6]] == [Outcome.FAILED] * 5 + [Outcome.COMPLETED]
        assert min(gaps[:5]) >= 0.3


async def test_a_continuous_task_leaves_with_its_code_and_comes_back(url: str) -> None:
    if url.startswith("memory"):
        return await _within_one_app()
    poller = Poller(url)
    async with poller.app, poller.app.worker():
        await until(lambda: poller.runs >= 2)
    without = App(url)

    @without.task
    async def poll() -> None: ...

    async with without, without.worker():
        await becomes(without, "poll", "retired")

        async def over() -> bool:
            return not [job for job in await jobs_of(without, "poll") if not job.ended]

        await until(over)
    again = Poller(url)
    async with again.app, again.app.worker():
        await until(lambda: again.runs >= 2)
        assert (await again.app.schedules.get("poll")).state == "active"
    return None


async def _within_one_app() -> None:
    poller = Poller("memory://")
    async with poller.app:
        async with poller.app.worker():
            await until(lambda: poller.runs >= 2)
        # Left by every worker that had it, though the store still knows it.
        assert (await poller.app.schedules.get("poll")).state == "unserved"


async def test_a_worker_that_works_until_nothing_is_left_ends_in_spite_of_it(url: str) -> None:
    poller = Poller(url)
    async with poller.app:
        await poller.app.worker(burst=True).run()


async def test_an_explanation_names_the_instance() -> None:
    poller = Poller("memory://", instances=1)
    async with poller.app as app, app.worker():
        await until(lambda: poller.runs >= 2)  # the first is over
        (job, *_) = await jobs_of(app, "poll", Status.COMPLETED)
        assert "a run of instance 1 of the continuous schedule 'poll'" in await app.jobs.explain(job.id)


def test_what_a_continuous_task_cannot_have_is_refused() -> None:
    app = App("memory://")
    for options, said in (
        ({"continuous": True}, "continuous must be a Continuous"),
        ({"continuous": Continuous(), "schedule": Every(minutes=1)}, "exclude each other"),
        ({"continuous": Continuous(), "dedup": "x"}, "leave dedup out"),
        ({"schedule": Continuous()}, "given as continuous="),
    ):
        with pytest.raises(ConfigError, match=re.escape(said)):

            @app.task(**options)
            async def poll() -> None: ...

    with pytest.raises(ConfigError, match="but a must be given"):

        @app.task(continuous=Continuous())
        async def needs(a: int) -> None: ...


def test_a_continuous_task_takes_as_long_as_it_likes_unless_told() -> None:
    app = App("memory://", defaults={"timeout": 3})

    @app.task(continuous=Continuous())
    async def endless() -> None: ...

    @app.task(continuous=Continuous(), timeout=60)
    async def bounded() -> None: ...

    assert (endless.handler.policy.timeout, bounded.handler.policy.timeout) == (None, 60)


# Schedules by hand


async def test_a_schedule_is_made_shown_previewed_and_changed(url: str) -> None:
    sums = Sums(url)
    start = datetime(2030, 3, 1, tzinfo=UTC)
    async with sums.app as app:
        rule = Cron("30 1 * * *", tz="America/New_York", start=start, jitter=60, overlap="wait", catch_up="all", cap=5)
        made = await app.schedules.set("sums", rule, sums.add.options(queue="q", priority="high").draft(1, b=2))
        assert made == await app.schedules.get("sums")
        assert (made.rule, made.queue, made.priority, made.payload) == (rule, "q", 80, {"a": 1, "b": 2})
        assert (made.state, made.skipped, made.waiting, made.last_job) == ("active", 0, None, None)
        # Through the turn of 10 March 2030.
        fires = [datetime(2030, 3, day, hour, 30, tzinfo=UTC) for day, hour in ((9, 6), (10, 6), (11, 5))]
        assert made.next_fire == datetime(2030, 3, 1, 6, 30, tzinfo=UTC)
        assert (await app.schedules.preview("sums", 11))[-3:] == fires
        assert (await app.schedules.preview(rule, 11))[-3:] == fires
        await app.schedules.pause("sums")
        assert (await app.schedules.preview("sums", 11))[-3:] == fires  # as if it did not rest
        with pytest.raises(UnknownSchedule):
            await app.schedules.get("none")
        with pytest.raises(UnknownSchedule):
            await app.schedules.preview("none")


async def test_a_schedule_that_is_made_again_stays_paused_until_it_is_resumed(url: str) -> None:
    sums = Sums(url)
    async with sums.app as app:
        for rule in (Every(hours=1), Cron("0 6 * * *"), Continuous()):
            await app.schedules.set("sums", rule, sums.add.draft(1))
            await app.schedules.pause("sums")
            again = await app.schedules.set("sums", rule, sums.add.draft(2))
            assert (again.state, again.next_fire, again.payload) == ("paused", None, {"a": 2})
            other = await app.schedules.set("sums", Every(hours=7), sums.add.draft(3))
            assert (other.state, other.rule) == ("paused", Every(hours=7))
            assert (await app.schedules.resume("sums")).state == "active"


async def test_what_cannot_be_scheduled_is_refused() -> None:
    sums = Sums()
    async with sums.app as app:
        past = app.host.clock.now() - timedelta(days=1)
        with pytest.raises(ConfigError, match="would never fire"):
            await app.schedules.set("x", Every(hours=1, end=past), sums.add.draft(1))
        with pytest.raises(ConfigError, match="leave dedup out"):
            await app.schedules.set("x", Every(hours=1, overlap="skip"), sums.add.options(dedup="k").draft(1))
        with pytest.raises(ConfigError, match="leave dedup out"):
            await app.schedules.set("x", Continuous(), sums.add.options(dedup="k").draft(1))
        with pytest.raises(ConfigError, match="n must be a whole number"):
            await app.schedules.preview(Every(hours=1), 0)
        with pytest.raises(ConfigError, match="preview takes"):
            await app.schedules.preview(None)  # type: ignore[arg-type]
        await app.schedules.set("run", Continuous(), sums.add.draft(1))
        with pytest.raises(ConfigError, match="has no fires"):
            await app.schedules.preview("run")
        assert [one.name for one in await app.schedules.list()] == ["run"]

    with pytest.raises(ConfigError, match="overlap='wait' needs the dedup key"):

        @sums.app.task(schedule=Every(hours=1, overlap="wait"), dedup="one")
        async def keyed() -> None: ...


async def test_a_continuous_schedule_made_by_hand_ends_when_it_is_deleted(url: str) -> None:
    app, seen = App(url), list[int]()

    @app.task
    async def poll(source: int) -> None:
        seen.append(source)
        if len(seen) == 4:
            raise ValueError("again after the cool-down")
        if len(seen) == 5:
            await asyncio.sleep(60)

    async with app, app.worker():
        await app.schedules.set("seven", Continuous(cool_down=60), poll.draft(7))
        await until(lambda: len(seen) == 4)

        async def failed() -> bool:
            return bool(await jobs_of(app, "seven", Status.RETRYING))

        await until(failed)
        await app.schedules.delete("seven")
        assert {job.status for job in await jobs_of(app, "seven")} == {Status.COMPLETED, Status.CANCELLED}
        await app.schedules.set("seven", Continuous(cool_down=60), poll.draft(7))
        await until(lambda: len(seen) == 5)
        await app.schedules.delete("seven")

        async def over() -> bool:
            return all(job.ended for job in await jobs_of(app, "seven"))

        await until(over, what="the run is cancelled")
        assert seen == [7] * 5


# Overlap


async def test_a_fire_that_waits_is_submitted_when_the_live_job_has_ended(url: str) -> None:
    app, gate, starts = App(url), asyncio.Event(), list[UUID]()

    @app.task
    async def slow(ctx: Context) -> None:
        starts.append(ctx.job_id)
        await gate.wait()

    async with app, app.worker():
        await app.schedules.set("slow", Every(seconds=0.2, overlap="wait"), slow.draft())

        async def waits() -> bool:
            info = await app.schedules.get("slow")
            return info.waiting is not None and info.skipped > 2

        await until(waits)
        await until(lambda: starts)
        assert len(starts) == 1
        await app.schedules.pause("slow")
        info = await app.schedules.get("slow")
        assert info.waiting is not None
        await app.schedules.resume("slow")
        await until(waits)
        gate.set()
        await until(lambda: len(starts) >= 3)
        assert len(set(starts)) == len(starts)
        await app.schedules.pause("slow")
        assert await at_once(app, "slow") == 1


async def test_a_fire_beside_a_live_job_is_skipped_and_counted(url: str) -> None:
    app, gate, starts = App(url), asyncio.Event(), list[int]()

    @app.task(schedule=Every(seconds=0.1, overlap="skip"))
    async def slow() -> None:
        starts.append(1)
        await gate.wait()

    async with app, app.worker():
        await becomes(app, "slow", "active")

        async def skipped() -> bool:
            return (await app.schedules.get("slow")).skipped >= 3

        await until(skipped)
        await until(lambda: starts)
        assert len(starts) == 1
        (job,) = await jobs_of(app, "slow")
        assert (await app.schedules.get("slow")).last_job == job.id
        assert "The schedule 'slow' submitted it" in await app.jobs.explain(job.id)
        gate.set()
        await until(lambda: len(starts) >= 2)


# Code


async def test_a_schedule_leaves_with_its_code_and_comes_back(tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)

    def version(scheduled: bool) -> App:
        app = App(url)

        @app.task(**({"schedule": Every(hours=1)} if scheduled else {}))  # type: ignore[call-overload, untyped-decorator]
        async def nightly() -> None: ...

        return app

    for scheduled, state in ((True, "active"), (False, "retired"), (True, "active")):
        app = version(scheduled)
        async with app, app.worker():
            await becomes(app, "nightly", state)
            assert ((await app.schedules.get("nightly")).next_fire is not None) is scheduled
    other = App(url)  # the function itself is gone, and so is every worker that had it
    async with other, other.worker():
        await becomes(other, "nightly", "unserved")
        handle = await other.schedules.trigger("nightly")
        assert handle.status is Status.QUEUED


# In a harness


async def test_time_that_passes_in_a_harness_fires_as_it_would(tmp_path: Path) -> None:
    app, ran = App(url_of("sqlite", tmp_path)), list[str]()

    @app.task(schedule=Every(hours=1, jitter=600, overlap="skip"))
    async def hourly(ctx: Context) -> None:
        assert ctx.job.fire_at is not None
        ran.append(f"{ctx.job.fire_at:%H:%M} {ctx.job.started_at == ctx.job.available_at}")

    @app.task
    async def slow() -> None: ...

    async with harness(app, now=datetime(2026, 1, 1, tzinfo=UTC)) as h:
        await h.advance(hours=3, minutes=30)
        assert ran == ["01:00 True", "02:00 True", "03:00 True"]
        await app.schedules.set("slow", Every(minutes=10, overlap="wait"), slow.draft())
        assert await h.advance(minutes=25) == 2
        assert [f"{at:%H:%M}" for at in await app.schedules.preview("slow", 2)] == ["04:00", "04:10"]


async def test_two_hours_that_fall_on_one_moment_in_a_gap_make_one_job() -> None:
    """On 8 March 2026 the clocks of New York leap from 02:00 to 03:00, which is 07:00 UTC."""
    app, ran = App("memory://"), list[str]()

    async def note(ctx: Context) -> None:
        ran.append(f"{ctx.job.schedule} {ctx.job.fire_at:%d %H:%M}")

    app.task(name="both", schedule=Cron("0 2,3 * * *", tz="America/New_York", catch_up="all"))(note)
    app.task(name="two", schedule=Cron("0 2 * * *", tz="America/New_York"))(note)
    app.task(name="three", schedule=Cron("0 3 * * *", tz="America/New_York"))(note)
    async with harness(app, now=datetime(2026, 3, 8, 4, tzinfo=UTC)) as h:
        await h.advance(days=1)
    assert sorted(ran) == ["both 08 07:00", "three 08 07:00", "two 08 07:00"]


async def test_a_continuous_task_runs_at_each_moment_a_harness_stops_at() -> None:
    app, ran = App("memory://"), list[int]()

    @app.task(continuous=Continuous(instances=2, cool_down=60))
    async def poll() -> None:
        ran.append(1)
        if len(ran) == 4:
            raise ValueError("rests")

    async with harness(app, now=datetime(2026, 1, 1, tzinfo=UTC)) as h:
        assert isinstance(h.clock, FakeClock)
        await h.advance(0)
        assert len(ran) == 4
        await h.advance(seconds=59)
        before = len(ran)
        await h.advance(seconds=1)
        assert len(ran) > before
        found = await jobs_of(app, "poll")
        assert sum(not job.ended for job in found) == 2
        assert max(job.attempt for job in found) == 2


async def test_an_edited_schedule_keeps_its_task_and_their_options(url: str) -> None:
    sums = Sums(url)
    async with sums.app as app:
        await app.schedules.set("sum", Every(hours=1), sums.add.options(queue="aside", tags=["kept"]).draft(1))
        await app.schedules.pause("sum")
        info = await app.schedules.edit("sum", Every(hours=2), sums.add.draft(5), by="ann")
        assert (info.rule, info.queue, info.payload["a"], info.paused) == (Every(hours=2), "aside", 5, True)
        info = await app.schedules.edit("sum", Every(hours=3))
        assert (info.rule, info.payload["a"]) == (Every(hours=3), 5)
        assert [(one.verb, one.by) for one in await app.store.audit() if one.key == "schedule:sum"][1] == ("set", "ann")
        assert (await (await app.schedules.trigger("sum")).refresh()).tags == ("kept",)
        with pytest.raises(UnknownSchedule):
            await app.schedules.edit("none", Every(hours=1))
        with pytest.raises(ConfigError, match="would never fire"):
            await app.schedules.edit("sum", Every(hours=1, end=datetime(2020, 1, 1, tzinfo=UTC)))


async def test_an_edit_does_not_bring_back_what_was_deleted_meanwhile(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = Sums(url)
    async with sums.app as app:
        await app.schedules.set("sum", Every(hours=1), sums.add.draft(1))
        written = app.session.engine.documents.put_setting

        async def after_another(key: str, *args: Any) -> Any:
            monkeypatch.setattr(app.session.engine.documents, "put_setting", written)
            await app.schedules.delete("sum")
            return await written(key, *args)

        monkeypatch.setattr(app.session.engine.documents, "put_setting", after_another)
        with pytest.raises(UnknownSchedule):
            await app.schedules.edit("sum", Every(hours=2))
        assert await app.schedules.list() == []


async def test_an_edit_keeps_the_task_that_another_gave_it_meanwhile(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = Sums(url)
    async with sums.app as app:
        await app.schedules.set("sum", Every(hours=1), sums.add.draft(1))
        written = app.session.engine.documents.put_setting

        async def after_another(key: str, *args: Any) -> Any:
            monkeypatch.setattr(app.session.engine.documents, "put_setting", written)
            await app.schedules.set("sum", Every(hours=1), sums.add.options(queue="aside").draft(7))
            return await written(key, *args)

        monkeypatch.setattr(app.session.engine.documents, "put_setting", after_another)
        info = await app.schedules.edit("sum", Every(hours=2))
        assert (info.rule, info.queue, info.payload["a"]) == (Every(hours=2), "aside", 7)


async def test_a_schedule_that_code_defines_is_not_edited_elsewhere(url: str) -> None:
    app = App(url)

    @app.task(schedule=Every(hours=1))
    async def often() -> None: ...

    async with app, app.worker():
        await becomes(app, "often", "active")
        with pytest.raises(ConfigError, match="defined in code"):
            await app.schedules.edit("often", Every(hours=2))
