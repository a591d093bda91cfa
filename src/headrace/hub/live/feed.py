"""The feed: changes are read once for all readers, and each reader gets the jobs that match its filter."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.core.hidden_errors import hidden_job
from headrace.core.job import Job
from headrace.core.query import Filter, matches
from headrace.core.updates import Changed
from headrace.core.words import Vocabulary, worded
from headrace.http.sse import event
from headrace.hub.api.documents import job_view
from headrace.runtime.watch.feed import Feed

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Seat", "SharedFeed"]

MAX_BACKLOG_JOBS = 1000
"""Maximum jobs that wait for a reader; of more, only the number is sent."""
MAX_BACKLOG_BYTES = 16 * 1024 * 1024
"""Maximum bytes that they may have together: each may have megabytes."""
CHUNK_BYTES = 256 * 1024
"""Bytes after which waiting events are sent, before the rest is encoded."""


class _Change:
    """A job that changed; its event is encoded once for all readers."""

    __slots__ = ("_sent", "job", "size")

    def __init__(self, job: Job) -> None:
        self.job = job
        self._sent: dict[tuple[bool, Vocabulary | None], bytes] = {}
        self.size = len(job.payload_text) + len(job.result_text or "")

    def sent(self, hidden: bool, words: Vocabulary | None) -> bytes:
        """Return the event in these words; ``hidden``: without the text of errors."""
        found = self._sent.get((hidden, words))
        if found is None:
            view = job_view(hidden_job(self.job) if hidden else self.job)
            found = self._sent[hidden, words] = event("job", view if words is None else worded(view, words))
        return found


class Seat:
    """One reader of the feed: the changes that it has not read yet, each job once."""

    def __init__(
        self, shared: SharedFeed, filter: Filter, hidden: bool = False, words: Vocabulary | None = None
    ) -> None:
        """``hidden``: events have no text of errors; ``words``: those for statuses."""
        self._shared, self._filter, self._hidden, self._words = shared, filter, hidden, words
        self._waiting: dict[UUID, _Change] = {}
        self._size = self._dropped = 0
        self._error: Exception | None = None
        self._wake = asyncio.Event()

    def leave(self) -> None:
        """Stop reading."""
        self._shared.leave(self)

    def offer(self, changes: list[_Change], dropped: int) -> None:
        """Keep the changes that match the filter."""
        now = self._shared.app.host.clock.now()
        for change in changes:
            known = self._waiting.pop(change.job.id, None)
            if known is not None:
                self._size -= known.size
            if not matches(change.job, self._filter, now):
                continue
            if len(self._waiting) >= MAX_BACKLOG_JOBS or (
                self._waiting and self._size + change.size > MAX_BACKLOG_BYTES
            ):
                self._dropped += 1
            else:
                self._waiting[change.job.id] = change
                self._size += change.size
        self._dropped += dropped
        if self._waiting or self._dropped:
            self._wake.set()

    def fail(self, error: Exception) -> None:
        """End with this error."""
        self._error = error
        self._wake.set()

    async def next(self, timeout: float) -> bytes:
        """Return the next events, not all if they are large; empty if there are none within the timeout."""
        if not self._waiting and self._error is None:
            await self._shared.app.host.wait(self._wake, timeout)
        self._wake.clear()
        parts, length = list[bytes](), 0
        while self._waiting and length < CHUNK_BYTES:
            id = next(iter(self._waiting))
            change = self._waiting.pop(id)
            self._size -= change.size
            parts.append(change.sent(self._hidden, self._words))
            length += len(parts[-1])
        if self._dropped and not self._waiting:
            parts.append(event("dropped", {"dropped": self._dropped}))
            self._dropped = 0
        if not parts and self._error is not None:
            raise self._error
        return b"".join(parts)


class SharedFeed:
    """Reads the App's feed while it has readers."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._seats: set[Seat] = set()
        self._opening = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def join(self, filter: Filter, hidden: bool = False, words: Vocabulary | None = None) -> Seat:
        """Return a reader that sees matching jobs from now on, in these words; ``hidden``: without the text of
        errors."""
        seat = Seat(self, filter, hidden, words)
        async with self._opening:
            if self._task is None or self._task.done():
                changes = self.app.jobs.feed()
                await changes.__aenter__()
                self._task = asyncio.create_task(self._run(changes), name="headrace-hub-feed")
            self._seats.add(seat)
        return seat

    def leave(self, seat: Seat) -> None:
        """Remove a reader."""
        self._seats.discard(seat)
        if not self._seats and self._task is not None:
            self._task.cancel()
            self._task = None

    def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, changes: Feed) -> None:
        async with changes:
            try:
                async for changed in changes:
                    self._offer(changed)
            except Exception as error:
                seats, self._seats = self._seats, set()
                for seat in seats:
                    seat.fail(error)

    def _offer(self, changed: Changed) -> None:
        changes = [_Change(job) for job in changed.jobs]
        for seat in self._seats:
            seat.offer(changes, changed.dropped)
