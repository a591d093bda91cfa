"""The feed that all readers share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from headrace import App
from headrace.client.api.filters import filter_of
from headrace.core.query import Filter
from headrace.core.updates import Changed
from headrace.errors import NotOpen
from headrace.hub.live import feed as module
from headrace.hub.live.feed import Seat, SharedFeed
from tests.support.apps import Sums
from tests.support.until import until


@pytest.fixture
async def sums() -> AsyncIterator[Sums]:
    made = Sums()
    async with made.app:
        yield made


def told(part: bytes) -> list[tuple[str, dict[str, object]]]:
    events = [one.split("\n") for one in part.decode().split("\n\n") if one]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]


async def all_with_deliveries(seat: Seat, names: int) -> list[tuple[str, dict[str, object]]]:
    found: list[tuple[str, dict[str, object]]] = []
    async with asyncio.timeout(30):
        while len(found) < names:
            found += told(await seat.next(5))
    return found


def feeds(app: App) -> int:
    return len(app.session._feeds)


async def test_however_many_read_there_is_one_feed(sums: Sums) -> None:
    shared = SharedFeed(sums.app)
    seats = [await shared.join(Filter()) for _ in range(5)]
    assert feeds(sums.app) == 1
    job = await sums.add.submit(1)
    for seat in seats:
        assert (await all_with_deliveries(seat, 1))[0][1]["id"] == str(job.id)
    for seat in seats:
        shared.leave(seat)
    assert shared._task is None
    again = await shared.join(Filter())  # who comes later begins a new one
    later = await sums.add.submit(1)
    assert (await all_with_deliveries(again, 1))[0][1]["id"] == str(later.id)
    shared.leave(again)


async def test_each_sees_what_it_asked_for(sums: Sums) -> None:
    shared = SharedFeed(sums.app)
    slow, ended = await shared.join(filter_of({"queue": "slow"})), await shared.join(filter_of({"status": "cancelled"}))
    one, two = await sums.add.submit(1), await sums.multiply.submit(1, 2)
    assert [event["id"] for _, event in await all_with_deliveries(slow, 1)] == [str(two.id)]
    await sums.app.jobs.handle(one.id).cancel()
    assert [event["id"] for _, event in await all_with_deliveries(ended, 1)] == [str(one.id)]
    shared.close()


async def test_a_job_that_changed_often_waits_once_and_as_it_is_now(sums: Sums) -> None:
    shared = SharedFeed(sums.app)
    seat = await shared.join(Filter())
    job = (await sums.add.submit(1)).last
    assert job is not None
    shared._offer(Changed((job,)))
    later = await sums.app.jobs.handle(job.id).cancel()
    shared._offer(Changed((later,)))
    events = told(await seat.next(5))
    assert [event["status"] for _, event in events] == ["cancelled"]
    shared.close()


async def test_a_job_that_no_longer_matches_is_told_no_more(sums: Sums) -> None:
    seat = Seat(SharedFeed(sums.app), filter_of({"status": "queued"}))
    one, other = [handle.last for handle in await sums.add.map([(n,) for n in range(2)])]
    assert one is not None
    assert other is not None
    seat.offer([module._Change(job) for job in (one, other)], dropped=0)
    seat.offer([module._Change(await sums.app.jobs.handle(one.id).cancel())], dropped=0)
    assert [event["id"] for _, event in told(await seat.next(5))] == [str(other.id)]
    assert await seat.next(0.01) == b""


async def test_a_job_that_waits_already_takes_no_room_and_waits_behind_what_changed_before_it(
    sums: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BACKLOG_JOBS", 2)
    seat = Seat(SharedFeed(sums.app), Filter())
    one, other = [handle.last for handle in await sums.add.map([(n,) for n in range(2)])]
    assert one is not None
    assert other is not None
    seat.offer([module._Change(job) for job in (one, other)], dropped=0)
    seat.offer([module._Change(await sums.app.jobs.handle(one.id).cancel())], dropped=0)
    events = told(await seat.next(5))
    assert [(name, event.get("id")) for name, event in events] == [("job", str(other.id)), ("job", str(one.id))]
    assert events[-1][1]["status"] == "cancelled"


async def test_of_more_than_a_reader_keeps_only_the_number_is_told(sums: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BACKLOG_JOBS", 3)
    seat = Seat(SharedFeed(sums.app), Filter())
    jobs = tuple(handle.last for handle in await sums.add.map([(n,) for n in range(5)]) if handle.last)
    seat.offer([module._Change(job) for job in jobs], dropped=4)
    events = told(await seat.next(5))
    assert [name for name, _ in events] == ["job", "job", "job", "dropped"]
    assert events[-1][1] == {"dropped": 6}
    assert await seat.next(0.01) == b""


async def test_closing_the_app_ends_it() -> None:
    sums = Sums()
    async with sums.app:
        shared = SharedFeed(sums.app)
        seat = await shared.join(Filter())
    with pytest.raises(NotOpen):
        await seat.next(5)
    await until(lambda: not shared._seats)


async def test_a_reader_keeps_a_bounded_number_of_bytes(sums: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BACKLOG_BYTES", 2500)
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    seat = Seat(SharedFeed(sums.app), Filter())
    jobs = [handle.last for handle in await sums.add.map([(n,) for n in range(5)])]
    large = [replace(job, payload_text=f'{{"a":"{"x" * 1000}"}}') for job in jobs if job is not None]
    seat.offer([module._Change(job) for job in large], dropped=0)
    seat.offer([module._Change(large[0])], dropped=0)  # which waits already
    parts = [told(await seat.next(5)) for _ in range(2)]
    assert [name for part in parts for name, _ in part] == ["job", "job", "dropped"]
    assert parts[-1][-1][1] == {"dropped": 3}
    assert seat._size == 0
