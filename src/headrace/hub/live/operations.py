"""Operations that stream: the events of one job or batch, and the feed of all jobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

import msgspec
from starlette.responses import Response

from headrace.client.api.filters import filter_of
from headrace.core.attempt import Attempt, Event
from headrace.core.batch import is_over
from headrace.core.hidden_errors import hidden_news
from headrace.core.updates import Update
from headrace.http.sse import BEAT_SECONDS, MEDIA, Teller, tell_job
from headrace.hub.api.batches import batch_of
from headrace.hub.api.documents import JobView, job_view
from headrace.hub.api.filters import SaidStatus, filters_in
from headrace.hub.api.hidden_errors import hides
from headrace.hub.auth.customers import job_of
from headrace.hub.live.batches import BatchReader, tell_batch, token_of
from headrace.hub.live.feed import Seat
from headrace.hub.live.sse import EventStream
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest

__all__ = ["OPERATIONS", "EventsQuery", "FeedQuery"]


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Where to resume."""

    since: str | None = None
    """The id of the last event that was read, for clients that cannot send ``Last-Event-ID``, which has precedence."""


class FeedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs; a parameter that is given more than once matches any of its values."""

    queue: tuple[str, ...] | None = None
    task: tuple[str, ...] | None = None
    customer: tuple[str, ...] | None = None
    status: tuple[SaidStatus, ...] | None = None
    type: tuple[str, ...] | None = None
    """The same as ``task``."""
    customer_id: tuple[str, ...] | None = None
    """The same as ``customer``."""


# One job


class SnapshotTold(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is, and the events of it that the reader has not received yet."""

    job: JobView
    attempts: tuple[Attempt, ...]
    acts: tuple[Event, ...]


def _snapshot(update: Update) -> SnapshotTold:
    return SnapshotTold(job=job_view(update.job), attempts=update.history.attempts, acts=update.history.events)


_TELLER, _HIDING = Teller(_snapshot), Teller(_snapshot, seen=hidden_news)


async def job_events(ask: OperationRequest) -> OperationReply | Response:
    """Stream the events of a job until it has ended, from its beginning or after the event that was read last."""
    job = await job_of(ask, ask.path["id"])
    since = ask.request.headers.get("last-event-id") or cast(EventsQuery, ask.query).since
    ask.hub.live.connections.check()
    teller = _HIDING if hides(ask.hub.options, ask.caller) else _TELLER
    if ask.words is not None:
        teller = teller._replace(words=ask.words)
    telling = await tell_job(ask.hub.app, job, since, teller)
    if telling is None:
        return OperationReply(status=204)  # all was read: a browser reconnects no more
    return EventStream(ask, *telling)


# One batch


async def batch_events(ask: OperationRequest) -> OperationReply | Response:
    """Stream the counts of a batch whenever they have changed, until all of its jobs have ended."""
    batch = await batch_of(ask, ask.path["id"])
    since = ask.request.headers.get("last-event-id") or cast(EventsQuery, ask.query).since
    if is_over(batch) and since == token_of(batch):
        return OperationReply(status=204)  # all was read: a browser reconnects no more
    ask.hub.live.connections.check()
    reader = BatchReader(ask.hub.app, batch)
    return EventStream(ask, tell_batch(reader, batch), reader.close)


# All jobs


async def feed(ask: OperationRequest) -> Response:
    """Stream jobs that change, each as it is then, until the reader disconnects."""
    filter = filter_of(filters_in(ask, ask.query))
    ask.hub.live.connections.check()
    seat = await ask.hub.live.feed.join(filter, hides(ask.hub.options, ask.caller), ask.words)
    return EventStream(ask, _fed(seat), seat.leave)


async def _fed(seat: Seat) -> AsyncGenerator[bytes, None]:
    while True:
        yield await seat.next(BEAT_SECONDS)


OPERATIONS = (
    Operation(
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
        path="/api/batches/{id}/events",
        summary="Follow a batch to its end, as server-sent events",
        scope="read",
        bounded="batch",
        do=batch_events,
        query=EventsQuery,
        headers={"Last-Event-ID": "The id of the last event that was read: if it was the end, the answer is 204."},
        gives={200: MEDIA, 204: None},
        refuses=(404,),
        answered='id: 100.60.1.0.1.0.0\nevent: status\ndata: {"ended":false}\n\n',
        path_examples={"id": "019a8b3f-9d20-7b11-8c3e-64b0d7e1a2f0"},
        live=True,
    ),
    Operation(
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
