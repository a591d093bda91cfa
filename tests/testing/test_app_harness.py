"""The harness as a user's tests use it: their own app, a memory store, a clock moved by hand."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from headrace import App, Context, Cron, Every, GiveUp, Retry, Snooze, Status
from headrace.errors import InvalidPayload, JobFailed, JobNotFound
from headrace.testing import harness

START = datetime(2026, 1, 1, tzinfo=UTC)


class Shop:
    """A user's program: an app, its tasks, and what they did."""

    def __init__(self) -> None:
        self.app = app = App("sqlite:///never-touched.db")
        self.did: list[str] = []

        @app.task
        async def send_welcome(address: str, language: str = "en") -> str:
            self.did.append(f"welcome {address} in {language}")
            return address

        @app.task(retry=Retry(max_retries=2, backoff=[60, 600]))
        def flaky(fails: int) -> int:
            self.did.append("flaky")
            if self.did.count("flaky") <= fails:
                raise RuntimeError("not yet")
            return self.did.count("flaky")

        @app.task
        async def signup(address: str) -> None:
            self.did.append(f"signup {address}")
            await send_welcome.submit(address)
            await send_welcome.options(delay=3600).submit(address, language="de")

        @app.task
        async def parent(n: int) -> int:
            child = await double.submit(n)
            return 1 + await child.result()

        @app.task
        def double(n: int) -> int:
            return 2 * n

        @app.task
        async def steps(ctx: Context) -> int:
            ctx.progress(40, "loading")
            if ctx.attempt < 3:
                raise Snooze(timedelta(minutes=5))
            return ctx.attempt

        @app.task
        async def hopeless() -> None:
            raise GiveUp("no such thing")

        self.send_welcome, self.flaky, self.signup = send_welcome, flaky, signup
        self.parent, self.double, self.steps, self.hopeless = parent, double, steps, hopeless


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_what_was_submitted_can_be_asserted(shop: Shop) -> None:
    async with harness(shop.app, now=START) as h:
        handle = await shop.send_welcome.submit("a@b.c")
        job = h.assert_submitted(shop.send_welcome, "a@b.c")
        assert job.id == handle.id
        assert h.submitted == [job]
        assert h.assert_submitted(shop.send_welcome, address="a@b.c", language="en") == job
        h.assert_not_submitted(shop.signup)
        assert shop.did == []


async def test_a_failed_assertion_tells_what_was_submitted(shop: Shop) -> None:
    async with harness(shop.app) as h:
        with pytest.raises(AssertionError, match="nothing was submitted"):
            h.assert_submitted(shop.send_welcome, "a@b.c")
        await shop.send_welcome.submit("x@y.z")
        with pytest.raises(AssertionError) as caught:
            h.assert_submitted(shop.send_welcome, "a@b.c")
        assert "not submitted: send_welcome(language='en', address='a@b.c')" in str(caught.value)
        assert "send_welcome(address='x@y.z')" in str(caught.value)
        with pytest.raises(AssertionError, match="send_welcome was submitted 1 times"):
            h.assert_not_submitted(shop.send_welcome)
        with pytest.raises(InvalidPayload):
            h.assert_submitted(shop.send_welcome, 7)  # type: ignore[call-overload]


async def test_without_arguments_any_job_of_the_task_will_do(shop: Shop) -> None:
    async with harness(shop.app) as h:
        with pytest.raises(AssertionError, match="not submitted: send_welcome"):
            h.assert_submitted(shop.send_welcome)
        await shop.send_welcome.submit("a@b.c")
        last = await shop.send_welcome.submit("d@e.f", language="de")
        assert h.assert_submitted(shop.send_welcome).id == last.id


async def test_drain_runs_what_is_due_and_what_that_submits(shop: Shop) -> None:
    async with harness(shop.app, now=START) as h:
        await shop.signup.submit("a@b.c")
        assert await h.drain() == 2
        assert shop.did == ["signup a@b.c", "welcome a@b.c in en"]
        h.assert_submitted(shop.send_welcome, "a@b.c", language="de")
        assert await h.drain() == 0


async def test_advance_runs_what_falls_due(shop: Shop) -> None:
    async with harness(shop.app, now=START) as h:
        await shop.signup.submit("a@b.c")
        assert await h.advance(minutes=59) == 2
        assert await h.advance(minutes=1) == 1
        assert h.now == START + timedelta(hours=1)
        assert shop.did[-1] == "welcome a@b.c in de"
        with pytest.raises(ValueError, match="one direction"):
            await h.advance(hours=-1)


async def test_retries_come_at_their_moments(shop: Shop) -> None:
    async with harness(shop.app, now=START) as h:
        job = await shop.flaky.submit(2)
        assert await h.drain() == 1
        assert (await h.job(job)).status is Status.RETRYING
        assert await h.advance(minutes=15) == 2
        done = await h.job(job)
        assert (done.status, done.result, done.charged) == (Status.COMPLETED, 3, 3)
        assert await job.result(timeout=1) == 3


async def test_a_job_ends_in_the_dead_letter_like_anywhere(shop: Shop) -> None:
    async with harness(shop.app, now=START) as h:
        job, given_up = await shop.flaky.submit(99), await shop.hopeless.submit()
        await h.advance(days=1)
        assert (await h.job(job)).status is Status.FAILED
        with pytest.raises(JobFailed, match="no such thing"):
            await given_up.result(timeout=1)


async def test_progress_and_snoozes(shop: Shop) -> None:
    async with harness(shop.app, now=START) as h:
        job = await shop.steps.submit()
        await h.drain()
        assert (await h.job(job)).status is Status.SCHEDULED
        assert await h.advance(minutes=10) == 2
        done = await h.job(job)
        assert (done.result, done.charged) == (3, 1)
        assert done.progress is not None
        assert done.progress.message == "loading"


async def test_a_handler_may_wait_for_the_job_it_submits(shop: Shop) -> None:
    async with harness(shop.app) as h:
        job = await shop.parent.submit(4)
        await h.drain()
        assert (await h.job(job)).result == 9


async def test_inline_runs_at_submit(shop: Shop) -> None:
    async with harness(shop.app, inline=True) as h:
        job = await shop.signup.submit("a@b.c")
        assert shop.did == ["signup a@b.c", "welcome a@b.c in en"]
        assert (await h.job(job)).status is Status.COMPLETED
        assert await (await shop.parent.submit(4)).result(timeout=1) == 9
        await shop.double.map([(n,) for n in range(3)])
        assert await h.drain() == 0
        assert await h.advance(hours=1) == 1


async def test_schedules_fire_when_time_passes(shop: Shop) -> None:
    ticks: list[datetime] = []

    @shop.app.task(schedule=Cron("0 6 * * *", tz="Europe/Berlin"))
    async def nightly() -> None:
        ticks.append(h.now)

    async with harness(shop.app, now=START) as h:
        await shop.app.schedules.set("often", Every(hours=9), shop.double.draft(3))
        assert await h.advance(days=2) == 2 + 5
        assert ticks == [START + timedelta(hours=5), START + timedelta(hours=29)]
        assert h.assert_submitted(shop.double, 3).spec.schedule == "often"
        fired = [job.spec.fire_at for job in h.submitted if job.task == "double"]
        assert fired == [START + timedelta(hours=9 * n) for n in range(1, 6)]


async def test_jobs_expire_when_time_passes(shop: Shop) -> None:
    async with harness(shop.app, now=START) as h:
        late = shop.double.options(not_before=START + timedelta(hours=2), not_after=START + timedelta(hours=3))
        job = await late.submit(1)
        h.clock.advance(hours=4)
        assert await h.advance() == 0
        assert (await h.job(job)).status is Status.CANCELLED


async def test_a_job_that_never_rests_is_told(shop: Shop) -> None:
    @shop.app.task
    async def restless() -> None:
        raise Snooze(0)

    async with harness(shop.app) as h:
        await restless.submit()
        with pytest.raises(AssertionError, match="'restless'"):
            await h.drain()


async def test_each_harness_begins_with_nothing(shop: Shop) -> None:
    async with harness(shop.app) as h:
        job = await shop.double.submit(1)
    async with harness(shop.app) as h:
        assert h.submitted == []
        with pytest.raises(JobNotFound):
            await h.job(job)
        assert await h.drain() == 0


@pytest.mark.parametrize("inline", [False, True])
async def test_plain_handlers_submit_and_wait_as_in_a_worker(shop: Shop, inline: bool) -> None:
    @shop.app.task(retry=Retry(max_retries=0))
    def twice(n: int) -> int:
        child = shop.double.submit_sync(n)
        return asyncio.run(_plus_one(shop.app.wait(child.result(timeout=5))))

    async with harness(shop.app, inline=inline) as h:
        job = await twice.submit(4)
        assert await h.drain() == (0 if inline else 2)
        assert await job.result(timeout=1) == 9
        h.assert_submitted(shop.double, 4)


async def _plus_one(n: int) -> int:
    return n + 1


async def test_what_other_threads_submit_is_seen(shop: Shop) -> None:
    async with harness(shop.app) as h:
        await asyncio.to_thread(shop.double.submit_sync, 7)
        h.assert_submitted(shop.double, 7)
        assert await h.drain() == 1
    assert shop.app._waiter is None


async def test_a_plain_handler_at_work_is_waited_for(shop: Shop) -> None:
    @shop.app.task
    def dawdle(n: int) -> None:
        shop.did.append(f"begin {n}")
        time.sleep(0.05)  # longer than the harness lets a handler wait before it begins the next beside it
        shop.did.append(f"end {n}")

    async with harness(shop.app) as h:
        await dawdle.map([(1,), (2,)])
        await h.drain()
        assert shop.did == ["begin 1", "end 1", "begin 2", "end 2"]


class Studio:
    """Tasks that are submitted together: in batches and in graphs."""

    def __init__(self) -> None:
        self.app = app = App("sqlite:///never-touched.db")
        self.did: list[str] = []

        @app.task(retry=Retry(max_retries=0))
        async def cut(clip: str) -> str:
            self.did.append(f"cut {clip}")
            if clip == "broken":
                raise ValueError(clip)
            return clip

        @app.task
        async def montage(title: str = "untitled") -> list[str]:
            self.did.append(f"montage {title}")
            return list((await Context.current().results(cut)) if title == "film" else [])

        @app.task
        async def alert() -> None:
            self.did.append("alert")

        @app.task
        async def film(clips: list[str]) -> None:
            async with app.batch(on_complete=montage.draft("in a handler")) as batch:
                batch.add_many(cut.draft(clip) for clip in clips)

        @app.bulk(size=10)
        async def index(words: list[str]) -> list[int]:
            self.did.append(f"index {' '.join(words)}")
            return [len(word) for word in words]

        self.cut, self.montage, self.alert, self.film, self.index = cut, montage, alert, film, index


@pytest.mark.parametrize("inline", [False, True])
async def test_a_batch_is_seen_and_so_is_what_follows_its_end(inline: bool) -> None:
    studio = Studio()
    async with harness(studio.app, now=START, inline=inline) as h:
        drafts = {"on_complete": studio.montage.draft(), "on_failure": studio.alert.draft()}
        async with studio.app.batch(**drafts) as batch:
            batch.add(studio.cut.draft("a"))
            batch.add(studio.cut.draft("broken"))
            assert h.submitted == []
        assert h.assert_submitted(studio.cut, "a").batch == batch.id
        assert [job.id for job in h.submitted[:2]] == [handle.id for handle in batch.handles]
        if not inline:
            assert studio.did == []
            h.assert_not_submitted(studio.montage)  # it is, once all have ended
        await h.drain()
        assert studio.did[:2] == ["cut a", "cut broken"]
        assert sorted(studio.did[2:]) == ["alert", "montage untitled"]
        h.assert_submitted(studio.montage)
        h.assert_submitted(studio.alert)
        assert len(h.submitted) == 4


@pytest.mark.parametrize("inline", [False, True])
async def test_a_graph_is_seen_in_the_order_it_runs(inline: bool) -> None:
    studio = Studio()
    async with harness(studio.app, inline=inline) as h:
        cuts = [studio.cut.draft("a"), studio.cut.draft("b")]
        film = studio.montage.options(after=cuts).draft("film")
        handles = await studio.app.submit_many([film, *cuts])
        assert [job.task for job in h.submitted] == ["cut", "cut", "montage"]
        assert set(h.assert_submitted(studio.montage, "film").after) == {draft.id for draft in cuts}
        h.assert_submitted(studio.cut, "b")
        await h.drain()
        assert await handles[0].result(timeout=1) == ["a", "b"]


async def test_a_large_batch_is_seen_whole_and_in_order() -> None:
    studio = Studio()
    async with harness(studio.app) as h:
        async with studio.app.batch() as batch:
            batch.add_many(studio.cut.draft(str(n)) for n in range(1003))
        assert [job.payload["clip"] for job in h.submitted] == [str(n) for n in range(1003)]


async def test_what_a_refused_graph_holds_was_not_submitted() -> None:
    studio = Studio()
    async with harness(studio.app) as h:
        missing = studio.cut.draft("never submitted")
        with pytest.raises(JobNotFound):
            await studio.app.submit_many([studio.cut.draft("a"), studio.montage.options(after=[missing]).draft()])
        assert h.submitted == []
        h.assert_not_submitted(studio.cut)


@pytest.mark.parametrize("inline", [False, True])
async def test_what_handlers_submit_together_is_seen(inline: bool) -> None:
    studio = Studio()
    async with harness(studio.app, inline=inline) as h:
        parent = await studio.film.submit(["a", "b"])
        await h.drain()
        assert h.assert_submitted(studio.cut, "b").parent == parent.id
        h.assert_submitted(studio.montage, "in a handler")
        assert [job.task for job in h.submitted] == ["film", "cut", "cut", "montage"]
        assert studio.did == ["cut a", "cut b", "montage in a handler"]


@pytest.mark.parametrize("inline", [False, True])
async def test_what_map_and_a_bulk_task_submit_is_seen(inline: bool) -> None:
    studio = Studio()
    async with harness(studio.app, inline=inline) as h:
        await studio.cut.map([("a",), {"clip": "b"}])
        job = await studio.index.submit("word")
        h.assert_submitted(studio.cut, "b")
        h.assert_submitted(studio.index, "word")
        await h.drain()
        assert studio.did == ["cut a", "cut b", "index word"]
        assert await job.result(timeout=1) == 4
