"""The events of one job as server-sent events: their order, and the ids from which a reader resumes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from headrace.core.job import Job
from headrace.core.updates import ResumeToken, Update
from headrace.core.words import Vocabulary, worded
from headrace.http.job_events import changes, ended_as, item_of, log_of, position_of
from headrace.runtime.watch.followers import Reader

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["BEAT_SECONDS", "HEADERS", "HELLO", "MEDIA", "STILL_HERE", "Teller", "Telling", "event", "tell_job"]

MEDIA = "text/event-stream"
BEAT_SECONDS = 15.0
"""Seconds after which a comment is sent if there is nothing else, since proxies close silent connections."""
RETRY_MILLISECONDS = 2000
"""Milliseconds after which a browser reconnects when it has lost the connection."""
HEADERS = {
    "Content-Type": f"{MEDIA}; charset=utf-8",
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",  # nginx would hold events back until they fill a page
}
HELLO = f": headrace\nretry: {RETRY_MILLISECONDS}\n\n".encode()
"""The beginning of a stream."""
STILL_HERE = b": still here\n\n"
"""Sent when there was no event for ``BEAT_SECONDS`` seconds."""

_CHUNK_BYTES = 64 * 1024
"""Bytes after which encoded events are sent, before the rest is encoded."""

_encode = msgspec.json.Encoder().encode


def event(name: str, document: Any, id: str | None = None) -> bytes:
    """Return one event as bytes; JSON has no line breaks of its own, so the data is one line."""
    head = f"event: {name}\ndata: " if id is None else f"id: {id}\nevent: {name}\ndata: "
    return b"%b%b\n\n" % (head.encode(), _encode(document))


class Teller(NamedTuple):
    """Makes the documents of a job's events; here shells differ."""

    snapshot: Callable[[Update], Any]
    """The document of the first event."""
    ended: Callable[[Job], Any] = ended_as
    """The document of the last event."""
    seen: Callable[[Update], Update] = lambda update: update
    """The update without what the reader may not see."""
    change: Callable[[Any], Any] = lambda document: document
    """The document of an event in between."""
    words: Vocabulary | None = None
    """The words for statuses; None: ours."""


class Telling(NamedTuple):
    """The events of a job."""

    parts: AsyncGenerator[bytes, None]
    """The events as they come; an empty part means that there was none for a while. It ends with the job."""
    close: Callable[[], None]
    """To be called at the end, also if no part was read."""


async def tell_job(app: App, job: Job, since: str | None, teller: Teller) -> Telling | None:
    """Return the events of a job until it has ended; ``since``: the id of the last event that the reader has.

    None: the reader has all of them.
    """
    mark = None if since is None else ResumeToken.read(since)
    reader = await app.jobs.follow(job, mark)
    try:
        first = await reader.take()
        assert first is not None
        if mark is not None and job.ended and (mark.rev, mark.at) == (job.rev, job.updated_at):
            second = await reader.take()
            assert second is not None
            second = teller.seen(second)
            if second.over and not (second.logs or second.items):
                reader.close()
                return None
            return Telling(_told(reader, teller, first, second), reader.close)
    except BaseException:
        reader.close()
        raise
    return Telling(_told(reader, teller, first), reader.close)


async def _told(reader: Reader, teller: Teller, *taken: Update) -> AsyncGenerator[bytes, None]:
    mark = taken[0].mark
    for update in taken:
        for part in _parts(teller.seen(update), mark, teller):
            yield part
        mark = update.mark
    over = taken[-1].over
    while not over:
        found = await reader.next(BEAT_SECONDS)
        if found is None:
            yield b""
            continue
        for part in _parts(teller.seen(found), mark, teller):
            yield part
        mark, over = found.mark, found.over


def _parts(update: Update, mark: ResumeToken, teller: Teller) -> list[bytes]:
    """Return the events of an update; an id says how far a reader is that has read this event."""
    parts = [bytearray()]

    def tell(name: str, document: object) -> None:
        if len(parts[-1]) > _CHUNK_BYTES:
            parts.append(bytearray())
        said = document if teller.words is None else worded(document, teller.words)
        parts[-1].extend(event(name, said, str(mark)))

    if update.before is None:
        tell("snapshot", teller.snapshot(update))
    for entry in update.logs:
        mark = replace(mark, log=entry.cursor)
        tell("log", log_of(entry))
    for entry in update.items:
        mark = replace(mark, item=entry.cursor)
        tell("item", item_of(entry))
    events: list[tuple[str, Any]] = [(name, teller.change(document)) for name, document in changes(update)]
    if update.over and events and events[-1][0] == "status":
        events.pop()
    if update.over:
        events.append(("status", teller.ended(update.job)))
    for name, document in events[:-1]:
        tell(name, document)
    mark = update.mark  # only the last event completes the update
    for name, document in events[-1:]:
        tell(name, document)
    if update.place is not None:
        tell("position", position_of(update.job, update.place))
    return [bytes(part) for part in parts]
