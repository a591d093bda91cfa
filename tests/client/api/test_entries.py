"""Log lines and items of a job, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from headrace.client.api import entries
from headrace.core.query import Page
from headrace.errors import ConfigError, JobNotFound
from tests.hub.shop import Shop
from tests.support.apps import ENGINES, url_of
from tests.support.until import until


@pytest.fixture(params=ENGINES)
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    made = Shop(url_of(request.param, tmp_path))
    async with made.app:
        yield made


async def items(shop: Shop, id: UUID, **how: Any) -> list[Page[Any]]:
    """All pages."""
    pages, cursor = list[Page[Any]](), None
    while True:
        pages.append(await shop.app.jobs.items(id, cursor=cursor, **how))
        cursor = pages[-1].cursor
        if cursor is None:
            return pages


async def test_log_lines_are_read_page_by_page(shop: Shop) -> None:
    job = await shop.tell.submit(5)
    empty = await shop.app.jobs.log_page(job.id)
    assert (empty.items, empty.cursor) == ((), "0.0")  # it has not ended: lines may come
    await shop.app.worker(burst=True).run()
    first = await shop.app.jobs.log_page(job.id, limit=3, cursor=empty.cursor)
    assert [line.message for line in first.items] == ["line 1", "line 2", "line 3"]
    assert first.cursor == f"1.{first.items[-1].number}"
    rest = await shop.app.jobs.log_page(job.id, limit=2, cursor=first.cursor)
    assert [line.message for line in rest.items] == ["line 4", "line 5"]
    assert rest.cursor is None  # it has ended, and this is all


async def test_the_end_of_a_log_is_read_without_its_beginning(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await shop.tell.submit(5)
    assert await shop.app.jobs.log_tail(job.id) == ([], False)
    await shop.app.worker(burst=True).run()
    lines, earlier = await shop.app.jobs.log_tail(job.id, limit=2)
    assert ([line.message for line in lines], earlier) == (["line 4", "line 5"], True)
    lines, earlier = await shop.app.jobs.log_tail(job.id, limit=5)
    assert ([line.message for line in lines], earlier) == ([f"line {number}" for number in range(1, 6)], False)
    monkeypatch.setattr(entries, "ENTRY_PAGE_BYTES", 1)
    lines, earlier = await shop.app.jobs.log_tail(job.id, limit=5)
    assert ([line.message for line in lines], earlier) == (["line 5"], True)
    with pytest.raises(JobNotFound):
        await shop.app.jobs.log_tail(uuid4())


async def test_a_page_has_a_cursor_as_long_as_more_may_come(shop: Shop) -> None:
    async with shop.app.worker():
        job = await shop.wait.submit()
        await until(lambda: _runs(shop, job.id))
        page = await shop.app.jobs.log_page(job.id)
        assert (page.items, page.cursor) == ((), "0.0")
        shop.go_on.set()
        await job.result(timeout=30)
    assert (await shop.app.jobs.log_page(job.id, cursor=page.cursor)).cursor is None


async def _runs(shop: Shop, id: UUID) -> bool:
    return (await shop.app.jobs.get(id)).status == "running"


async def test_the_lines_of_one_attempt(shop: Shop) -> None:
    job = await shop.tell.submit(2)
    await shop.app.worker(burst=True).run()
    page = await shop.app.jobs.log_page(job.id, attempt=1)
    assert (len(page.items), page.cursor) == (2, None)
    other = await shop.app.jobs.log_page(job.id, attempt=2)
    assert (other.items, other.cursor) == ((), None)


async def test_items_are_read_page_by_page(shop: Shop) -> None:
    job = await shop.stream.submit(5)
    await shop.app.worker(burst=True).run()
    pages = await items(shop, job.id, limit=2)
    assert [[item.value for item in page.items] for page in pages] == [
        ["item 1", "item 2"],
        ["item 3", "item 4"],
        ["item 5"],
    ]
    assert [page.cursor for page in pages] == ["1.2", "1.4", None]


async def test_a_stream_that_began_anew_is_read_from_there(shop: Shop) -> None:
    job = await shop.stumble.submit(3)
    await shop.app.worker(burst=True).run()
    [page] = await items(shop, job.id)
    assert [(item.value, item.attempt, item.restarted) for item in page.items] == [
        (2, 2, False),
        (4, 2, False),
        (6, 2, False),
    ]


async def test_behind_a_cursor_the_new_beginning_is_marked(shop: Shop) -> None:
    job = await shop.stumble.submit(3)
    await shop.app.worker(burst=True).run()
    page = await shop.app.jobs.items(job.id, cursor="1.2")
    assert [(item.value, item.restarted) for item in page.items] == [(3, False), (2, True), (4, False), (6, False)]
    page = await shop.app.jobs.items(job.id, cursor="2.0")  # it had read up to the new beginning, but no item of it
    assert [(item.value, item.restarted) for item in page.items] == [(2, True), (4, False), (6, False)]


async def test_a_page_ends_when_it_is_large(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "ENTRY_PAGE_BYTES", 10)
    job = await shop.stream.submit(3)
    await shop.app.worker(burst=True).run()
    pages = await items(shop, job.id)
    assert [len(page.items) for page in pages] == [2, 1]  # "item 1" has eight bytes


async def test_what_cannot_be_read(shop: Shop) -> None:
    job = await shop.stream.submit(1)
    for cursor in ("", "1", "1.", "-1.0", "1.0 ", "٣.١", "1.0.0", "9" * 10 + ".1", 5):
        with pytest.raises(ConfigError, match="cursor"):
            await shop.app.jobs.items(job.id, cursor=cursor)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="cursor"):
            await shop.app.jobs.log_page(job.id, cursor=cursor)  # type: ignore[arg-type]
    for limit in (0, 1001):
        with pytest.raises(ConfigError, match="limit"):
            await shop.app.jobs.log_page(job.id, limit=limit)
    for read in (shop.app.jobs.items, shop.app.jobs.log_page):
        with pytest.raises(JobNotFound):
            await read(uuid4())
