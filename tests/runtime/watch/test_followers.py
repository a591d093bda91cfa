from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace import App, Context
from headrace.core.entry import Kind
from headrace.core.status import Status
from headrace.core.updates import Update
from headrace.engine.bus import Hint, Topic
from headrace.errors import JobNotFound, NotOpen, Unavailable
from headrace.runtime.watch import followers as module
from headrace.runtime.watch.followers import Reader
from tests.support.apps import ENGINES, url_of
from tests.support.until import until

pytestmark = pytest.mark.every_engine

_log = logging.getLogger("tests.audience")


class Scene:
    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.gate = asyncio.Event()

        @self.app.task
        async def talk(ctx: Context, lines: int) -> str:
            for number in range(lines):
                _log.warning("line %d", number)
            await ctx.flush()
            await self.gate.wait()
            _log.warning("last line")
            return "done"

        self.talk = talk


@pytest.fixture(params=ENGINES)
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(url_of(request.param, tmp_path))
    async with made.app:
        yield made


@pytest.fixture
async def here() -> AsyncIterator[Scene]:
    made = Scene("memory://")
    async with made.app:
        yield made


async def all_of(reader: Reader) -> list[Update]:
    async with asyncio.timeout(30), reader:
        return [news async for news in reader]


def lines(news: list[Update]) -> list[int]:
    return [entry.number for one in news for entry in one.logs]


async def test_all_entries_come_before_the_end_however_many_there_are(scene: Scene) -> None:
    scene.gate.set()
    async with scene.app.worker():
        job = await scene.talk.submit(2 * module.PAGE_ENTRIES + 7)
        news = await all_of(await scene.app.jobs.follow(job.id))
    assert lines(news) == list(range(1, 2 * module.PAGE_ENTRIES + 9))
    assert news[-1].over
    assert [one.over for one in news].count(True) == 1


async def test_no_end_is_told_before_the_last_page_of_the_log(scene: Scene) -> None:
    """Not by ``over``, and not by the job either."""
    async with scene.app.worker():
        job = await scene.talk.submit(2 * module.PAGE_ENTRIES)
        async with await scene.app.jobs.follow(job.id) as reader:
            read = [await anext(reader)]
            scene.gate.set()
            await until(lambda: reader.job.ended)
            async with asyncio.timeout(30):
                read = [news async for news in reader]
    assert lines(read) == list(range(1, 2 * module.PAGE_ENTRIES + 2))
    assert len([one for one in read if one.logs]) == 3, "page by page"
    assert [(one.job.ended, one.over) for one in read] == [(False, False)] * (len(read) - 1) + [(True, True)]


async def test_a_look_that_is_older_than_what_is_known_changes_nothing(scene: Scene) -> None:
    job = (await scene.talk.submit(1)).last
    assert job is not None
    async with await scene.app.jobs.follow(job) as reader:
        assert (await anext(reader)).job.status is Status.QUEUED
        postponed = await scene.app.jobs.handle(job.id).postpone(3600)
        while (await anext(reader)).job.rev < postponed.rev:
            pass
        async with await scene.app.jobs.follow(job) as late:  # who read the job before that, and comes behind
            first = await anext(late)
            assert (first.job.status, first.job.rev) == (postponed.status, postponed.rev)
            assert reader.job.rev == postponed.rev
        await scene.app.jobs.handle(job.id).cancel()
        async with asyncio.timeout(30):
            rest = [news.job async for news in reader]
        assert [one.status for one in rest if one.rev > postponed.rev][-1] is Status.CANCELLED
        assert min(one.rev for one in rest) >= postponed.rev


async def test_it_goes_on_behind_a_mark_of_another_process(scene: Scene) -> None:
    async with scene.app.worker():
        job = await scene.talk.submit(5)
        async with await scene.app.jobs.follow(job.id) as reader:
            read = list[Update]()
            while len(lines(read)) < 5:
                read.append(await anext(reader))
        scene.gate.set()
        await job.result(timeout=30)
    other = App(scene.app.settings.url) if scene.app.settings.url != "memory://" else scene.app
    async with other:
        rest = await all_of(await other.jobs.follow(job.id, read[-1].mark))
    assert lines(rest) == [6]
    assert rest[0].before is None
    assert rest[-1].over


async def test_a_reader_that_comes_back_late_misses_no_line_and_not_the_end(scene: Scene) -> None:
    async with scene.app.worker():
        job = await scene.talk.submit(3)
        async with await scene.app.jobs.follow(job.id) as reader:
            assert (await anext(reader)).before is None
            scene.gate.set()
            await job.result(timeout=30)
            rest = [news async for news in reader]
    assert lines(rest) == [1, 2, 3, 4]
    assert rest[-1].job.status is Status.COMPLETED


async def test_readers_at_the_same_place_share_a_question(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    tail = here.app.session.engine.entries.tail

    async def counted(*of: object, **options: object) -> object:
        asked.append(of)
        return await tail(*of, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(here.app.session.engine.entries, "tail", counted)
    job = await here.talk.submit(1)
    readers = [await here.app.jobs.follow(job.id) for _ in range(10)]
    following = [asyncio.create_task(all_of(one)) for one in readers]
    here.gate.set()
    async with here.app.worker():
        found = await asyncio.gather(*following)
    assert [lines(one) for one in found] == [[1, 2]] * 10
    assert len(here.app.session.followers) == 0
    assert len([of for of in asked if of[1] is Kind.LOG]) < 40


async def test_a_hint_that_was_lost_is_made_up_for(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_FIRST_SECONDS", 0.02)
    monkeypatch.setattr(here.app.session.followers, "_hear", lambda hint: None)
    async with here.app.worker():
        job = await here.talk.submit(1)
        async with await here.app.jobs.follow(job.id) as reader:
            read = list[Update]()
            while not lines(read):
                read.append(await anext(reader))
    assert lines(read) == [1]


async def test_a_hint_without_names_is_about_all(here: Scene) -> None:
    job = await here.talk.submit(1)
    async with await here.app.jobs.follow(job.id) as reader:
        await anext(reader)
        before = reader._followed.version
        here.app.session.engine.bus.send(Hint(Topic.ENTRIES))
        await until(lambda: reader._followed.version > before)


async def test_while_the_store_is_away_it_waits(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STORE_RETRY_SECONDS", 0.02)
    tail, away, tries = here.app.session.engine.entries.tail, [True], list[object]()

    async def broken(*of: object, **options: object) -> object:
        if away[0]:
            tries.append(of)
            raise Unavailable("away")
        return await tail(*of, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(here.app.session.engine.entries, "tail", broken)
    here.gate.set()
    async with here.app.worker():
        job = await here.talk.submit(1)
        await job.result(timeout=30)
    async with await here.app.jobs.follow(job.id) as reader:
        assert (await anext(reader)).job.ended
        following = asyncio.create_task(anext(reader))
        await until(lambda: tries)
        assert not following.done()
        away[0] = False
        async with asyncio.timeout(30):
            assert lines([await following]) == [1, 2]


async def test_a_job_that_is_gone_is_told_as_missing(here: Scene) -> None:
    job = await here.talk.submit(1)
    reader = await here.app.jobs.follow(job.id)
    async with reader:
        await anext(reader)
        reader._followed.fail(JobNotFound(job.id))
        with pytest.raises(JobNotFound):
            async for _ in reader:
                pass
    with pytest.raises(JobNotFound):
        await here.app.jobs.follow("00000000-0000-7000-8000-000000000000")


async def test_a_job_that_is_retried_while_somebody_still_reads_its_end_is_followed_again(here: Scene) -> None:
    job = await here.talk.submit(1)
    slow = await here.app.jobs.follow(job.id)
    await slow.take()
    await here.app.jobs.handle(job.id).cancel()
    await until(lambda: slow.job.ended and slow._followed._task.done())
    await here.app.jobs.handle(job.id).retry()
    async with await here.app.jobs.follow(job.id) as reader:
        assert (await anext(reader)).job.status is Status.QUEUED
        here.gate.set()
        async with here.app.worker(), asyncio.timeout(30):
            assert [news.job.status async for news in reader][-1] is Status.COMPLETED
    slow.close()


async def test_a_fault_is_told_to_all_who_look(here: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(id: object) -> object:
        raise ZeroDivisionError

    monkeypatch.setattr(here.app.session.watcher, "follow", broken)
    job = await here.talk.submit(1)
    async with await here.app.jobs.follow(job.id) as reader:
        with pytest.raises(ZeroDivisionError):
            async for _ in reader:
                pass


async def test_closing_the_app_ends_it() -> None:
    scene = Scene("memory://")
    async with scene.app:
        job = await scene.talk.submit(1)
        reader = await scene.app.jobs.follow(job.id)
        following = asyncio.create_task(all_of(reader))
        await until(lambda: reader._told is not None)
    with pytest.raises(NotOpen):
        await following


async def test_the_last_who_leaves_ends_the_listening(here: Scene) -> None:
    job = await here.talk.submit(1)
    one, two = [await here.app.jobs.follow(job.id) for _ in range(2)]
    assert len(here.app.session.followers) == 1
    one.close()
    assert len(here.app.session.followers) == 1
    two.close()
    assert len(here.app.session.followers) == 0
    assert not here.app.session.engine.bus.wanted(Topic.ENTRIES)
