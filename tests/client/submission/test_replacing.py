"""Uniqueness for a period, debounce and replace, through an App, on every engine."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from headrace import App, Duplicate, Status
from headrace.client.background import close
from headrace.errors import ConfigError
from tests.support.apps import ENGINES, url_of
from tests.support.until import until


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


class Index:
    """An App that indexes pages, each at most once at a time."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.ran: list[int] = []
        self.going = asyncio.Event()

        @self.app.task(dedup="page:{page}")
        async def index(page: str, n: int) -> int:
            self.ran.append(n)
            return n

        @self.app.task(dedup="page:{page}", on_duplicate="replace", delay=3600)
        async def quietly(page: str, n: int) -> int:
            self.ran.append(n)
            return n

        @self.app.task
        async def wait(n: int) -> int:
            await self.going.wait()
            return n

        self.index, self.quietly, self.wait = index, quietly, wait


async def test_a_key_is_held_for_a_period(url: str) -> None:
    site = Index(url)
    once = site.index.options(dedup_for=timedelta(hours=1))
    async with site.app, site.app.worker():
        first = await once.submit("a", 1)
        assert await first.result(timeout=45) == 1
        again = await once.submit("a", 2)
        assert (again.duplicate, again.replaced, again.id) == (True, False, first.id)
        assert await again.result(timeout=45) == 1
        with pytest.raises(Duplicate, match="completed"):
            await site.index.options(on_duplicate="raise").submit("a", 3)
        assert not (await once.submit("b", 4)).duplicate
        rerun = await first.rerun()
        assert not rerun.duplicate
        assert await rerun.result(timeout=45) == 1
        await rerun.discard()
        assert not (await once.submit("a", 5)).duplicate, "discarded, so its key is free"
        assert (await site.app.store.verify()).ok


@pytest.mark.every_engine
async def test_the_last_of_many_submits_counts(url: str) -> None:
    site = Index(url)
    async with site.app:
        handles = [await site.quietly.submit("a", n) for n in range(5)]
        assert [handle.duplicate for handle in handles] == [False, True, True, True, True]
        assert [handle.replaced for handle in handles] == [False, True, True, True, True]
        assert {handle.id for handle in handles} == {handles[0].id}
        assert handles[2].last is not None
        assert handles[2].last.payload == {"page": "a", "n": 2}
        job = await handles[0].refresh()
        assert (job.status, job.payload) == (Status.SCHEDULED, {"page": "a", "n": 4})
        assert job.available_at > job.created_at + timedelta(seconds=3600), "the delay counts from the last submit"
        events = (await site.app.jobs.history(job.id)).events
        assert [event.verb for event in events] == ["replace"] * 4
        at_once = await site.quietly.options(delay=0).submit("a", 9)
        assert (at_once.replaced, at_once.status) == (True, Status.QUEUED)
        async with site.app.worker():
            assert await handles[0].result(timeout=45) == 9
        assert (await site.app.store.verify()).ok
    assert site.ran == [9]


async def test_many_of_one_call(url: str) -> None:
    site = Index(url)
    async with site.app:
        handles = await site.quietly.map([("a", 1), ("b", 2), ("a", 3), ("b", 4), ("a", 5)])
        assert [handle.replaced for handle in handles] == [False, False, True, True, True]
        found = [(await handle.refresh()).payload["n"] for handle in handles[:2]]
        assert found == [5, 4]
        async with site.app.batch() as batch:
            batch.add_many([site.quietly.draft("a", 6), site.quietly.draft("c", 7)])
        assert [handle.replaced for handle in batch.handles] == [True, False]
        assert (await batch.refresh()).tally.total == 1
        assert (await handles[0].refresh()).payload["n"] == 6


async def test_a_running_job_lets_go_and_the_next_holds_the_key(url: str) -> None:
    site = Index(url)
    replacing = site.wait.options(dedup="k", on_duplicate="replace")
    async with site.app, site.app.worker():
        first = await replacing.submit(1)

        async def runs() -> bool:
            return (await first.refresh()).status is Status.RUNNING

        await until(runs)
        second = await replacing.options(delay=3600).submit(2)
        assert (second.duplicate, second.replaced) == (False, False)
        assert second.id != first.id
        third = await replacing.submit(3)
        assert (third.replaced, third.id) == (True, second.id)
        assert (await site.app.store.verify()).ok
        site.going.set()
        assert [await handle.result(timeout=45) for handle in (first, second)] == [1, 3]
        assert not (await replacing.submit(4)).duplicate


@pytest.mark.every_engine
async def test_whatever_is_claimed_meanwhile_the_last_word_is_run_last(url: str) -> None:
    site = Index(url)
    replacing = site.index.options(on_duplicate="replace")
    async with site.app:
        async with site.app.worker(concurrency=1):
            for n in range(60):
                await replacing.submit("a", n)

            async def over() -> bool:
                statuses = (await site.app.stats.counts()).statuses
                return set(statuses) == {Status.COMPLETED}

            await until(over)
        assert (await site.app.store.verify()).ok
        stored = (await site.app.stats.counts()).statuses[Status.COMPLETED]
    assert site.ran[-1] == 59
    assert site.ran == sorted(set(site.ran)), "never an older one after a newer one"
    assert len(site.ran) == stored


async def test_a_draft_that_is_submitted_again_replaces_nothing_that_is_newer(url: str) -> None:
    site = Index(url)
    async with site.app:
        holder = await site.quietly.submit("a", 0)
        draft, newer = site.quietly.draft("a", 1), site.quietly.draft("a", 2)
        await draft.submit()
        await newer.submit()
        again = await draft.submit()
        assert (again.id, again.duplicate, again.replaced) == (holder.id, True, True)
        assert (await holder.refresh()).payload["n"] == 2
        assert again.last is not None
        assert again.last.payload["n"] == 2


async def test_a_child_that_is_submitted_again_by_the_next_attempt(url: str) -> None:
    site = Index(url)
    app = site.app

    @app.task
    async def parent() -> list[bool]:
        child = await site.quietly.submit("a", 7)
        return [child.duplicate, child.replaced]

    async with app:
        holder = await site.quietly.submit("a", 0)
        first = await parent.submit()
        async with app.worker():
            assert await first.result(timeout=45) == [True, True]
        assert (await holder.refresh()).payload["n"] == 7
        assert (await holder.refresh()).parent is None, "it stays whose it was"


def test_without_an_event_loop(tmp_path: Path) -> None:
    site = Index(url_of("sqlite", tmp_path))
    try:
        first = site.quietly.submit_sync("a", 1)
        second = site.quietly.submit_sync("a", 2)
        assert (second.id, second.duplicate, second.replaced) == (first.id, True, True)
        assert site.app.wait(first.refresh()).payload["n"] == 2
    finally:
        close()


async def test_a_rerun_may_replace(tmp_path: Path) -> None:
    site = Index(url_of("memory", tmp_path))
    async with site.app:
        async with site.app.worker():
            done = await site.index.submit("a", 1)
            await done.result(timeout=45)
        live = await site.index.options(delay=60).submit("a", 2)
        again = await done.rerun()
        assert (again.id, again.duplicate, again.replaced) == (live.id, True, False)
        again = await done.rerun(on_duplicate="replace")
        assert (again.id, again.duplicate, again.replaced) == (live.id, True, True)
        assert (await live.refresh()).payload["n"] == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dedup_for": 0}, "longer than 0"),
        ({"dedup_for": -1}, "dedup_for"),
        ({"dedup_for": "1h"}, "dedup_for"),
        ({"on_duplicate": "replace", "dedup_for": 60}, "exclude each other"),
        ({"on_duplicate": "replace", "request_key": "r"}, "request_key exclude each other"),
        ({"on_duplicate": "replace", "after": ["01890000-0000-7000-8000-000000000001"]}, "after exclude each other"),
        ({"on_duplicate": "keep"}, "'return' or 'raise' or 'replace'"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, object], says: str) -> None:
    site = Index("memory://")
    with pytest.raises(ConfigError, match=says):
        site.index._with_options(options)


def test_a_key_is_needed() -> None:
    site = Index("memory://")
    with pytest.raises(ConfigError, match="there is no key: give dedup"):
        site.wait.options(dedup_for=60).draft(1)
    with pytest.raises(ConfigError, match="give dedup, too"):
        site.wait.options(on_duplicate="replace").draft(1)
    for task in (site.quietly, site.index.options(dedup_for=60)):
        draft = task.options(dedup=None).draft("a", 1)
        spec = draft._spec(site.app.host.clock.now())
        assert (spec.dedup, spec.dedup_for, spec.on_duplicate) == (None, None, "return"), "asked for without a key"
    assert site.wait.options(dedup_for=60).options(dedup="k").draft(1).options["dedup_for"] == 60.0
    assert site.index.options(dedup_for=60).options(dedup_for=None, on_duplicate="replace").draft("a", 1)


async def test_a_submit_by_name_does_as_the_task_says(tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)
    site, stranger = Index(url), App(url)
    async with site.app, site.app.worker(), stranger:

        async def registered() -> bool:
            # A worker shows which tasks it has before it has described them.
            return {task.name for task in await stranger.tasks.list() if task.schema} >= {"index", "quietly", "wait"}

        await until(registered)
        first = await stranger.submit("quietly", {"page": "a", "n": 1}, delay=60)
        second = await stranger.submit("quietly", {"page": "a", "n": 2}, delay=60)
        assert (second.id, second.replaced) == (first.id, True)
        with pytest.raises(ConfigError, match="there is no key"):
            await stranger.submit("wait", {"n": 1}, dedup_for=60)
