"""Operations that go on: the events of one job, and the feed of all."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from headrace.client.finding import Filters, filter_of
from headrace.core.news import Mark, News
from headrace.hub.live.feed import Seat
from headrace.hub.live.sse import BEAT, MEDIA, EventStream, event
from headrace.hub.live.telling import changes, ended_as, item_of, log_of, position_of, snapshot_of
from headrace.hub.operation import Answer, Ask, Operation
from headrace.hub.scoping import filters_of, job_of
from headrace.runtime.audience import Reader

__all__ = ["OPERATIONS", "EventsQuery", "FeedQuery"]

_CHUNK = 64 * 1024
"""Bytes after which what is to be told is sent, before the rest of it is even written."""


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How to go on."""

    since: str | None = None
    """The id of the last event that was read, for those who cannot send ``Last-Event-ID``, which wins."""


class FeedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs; a parameter that is given more than once matches any of its values."""

    queue: tuple[str, ...] | None = None
    task: tuple[str, ...] | None = None
    customer: tuple[str, ...] | None = None
    status: tuple[str, ...] | None = None


# One job


async def job_events(ask: Ask) -> Answer | Response:
    """The events of a job until it has ended, from its beginning or behind the event that was read last."""
    job = await job_of(ask, ask.path["id"])
    given = ask.request.headers.get("last-event-id") or cast(EventsQuery, ask.query).since
    since = None if given is None else Mark.read(given)
    ask.hub.live.connections.check()
    reader = await ask.hub.app.follow(job, since)
    try:
        first = await reader.take()
        assert first is not None
        if since is not None and job.ended and (since.rev, since.at) == (job.rev, job.updated_at):
            second = await reader.take()
            assert second is not None
            if second.over and not (second.logs or second.items):
                reader.close()
                return Answer(status=204)  # all of it was read: a browser comes again no more
            return EventStream(ask, _told(reader, first, second), reader.close)
    except BaseException:
        reader.close()
        raise
    return EventStream(ask, _told(reader, first), reader.close)


async def _told(reader: Reader, *taken: News) -> AsyncGenerator[bytes, None]:
    mark = taken[0].mark
    for news in taken:
        for part in _parts(news, mark):
            yield part
        mark = news.mark
    over = taken[-1].over
    while not over:
        found = await reader.next(BEAT)
        if found is None:
            yield b""
            continue
        for part in _parts(found, mark):
            yield part
        mark, over = found.mark, found.over


def _parts(news: News, mark: Mark) -> list[bytes]:
    """What is sent of some news; an id says how far a reader has come that has read that event."""
    parts = [bytearray()]

    def tell(name: str, document: object) -> None:
        if len(parts[-1]) > _CHUNK:
            parts.append(bytearray())
        parts[-1].extend(event(name, document, str(mark)))

    if news.before is None:
        tell("snapshot", snapshot_of(news))
    for entry in news.logs:
        mark = replace(mark, log=entry.cursor)
        tell("log", log_of(entry))
    for entry in news.items:
        mark = replace(mark, item=entry.cursor)
        tell("item", item_of(entry))
    told: list[tuple[str, msgspec.Struct]] = list(changes(news))
    if news.over and told and told[-1][0] == "status":
        told.pop()
    if news.over:
        told.append(("status", ended_as(news.job)))
    for name, document in told[:-1]:
        tell(name, document)
    mark = news.mark  # only with the last of them, all that happened is told
    for name, document in told[-1:]:
        tell(name, document)
    if news.place is not None:
        tell("position", position_of(news.job, news.place))
    return [bytes(part) for part in parts]


# All jobs


async def feed(ask: Ask) -> Response:
    """The jobs that change, as they are by then, until the reader has had enough."""
    given = {name: value for name, value in msgspec.structs.asdict(ask.query).items() if value}
    filter = filter_of(filters_of(ask, cast(Filters, given)))
    ask.hub.live.connections.check()
    seat = await ask.hub.live.feed.join(filter)
    return EventStream(ask, _fed(seat), seat.leave)


async def _fed(seat: Seat) -> AsyncGenerator[bytes, None]:
    while True:
        yield await seat.next(BEAT)


OPERATIONS = (
    Operation(
        name="job_events",
        method="GET",
        path="/api/jobs/{id}/events",
        summary="Follow a job to its end, as server-sent events",
        scope="read",
        bounded="job",
        do=job_events,
        query=EventsQuery,
        headers={"Last-Event-ID": "The id of the last event that was read: what happened since is told first."},
        gives={200: MEDIA, 204: None},
        refuses=(404, 410),
        answered='id: 4.0.0\nevent: status\ndata: {"status":"running"}\n\n',
        path_examples={"id": "0198c5a4-7b1e-7cc2-8d4f-5b6a7c8d9e0f"},
        live=True,
    ),
    Operation(
        name="feed",
        method="GET",
        path="/api/events",
        summary="Follow all jobs that match, as server-sent events",
        scope="read",
        bounded="told",
        do=feed,
        query=FeedQuery,
        gives={200: MEDIA},
        answered='event: dropped\ndata: {"dropped":17}\n\n',
        live=True,
    ),
)
