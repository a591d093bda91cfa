"""How jobs are written: inserts, finishes and actions, each in a batcher, with hints after the commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from msgspec.structs import force_setattr, replace

from headrace.config import Settings
from headrace.core.batch import Batch
from headrace.core.change import Applied, Change, Note, Verdict, WasStale
from headrace.core.entry import Append, Kept
from headrace.core.job import Job
from headrace.core.lifecycle.decision import expires_soon
from headrace.core.status import Status, Verb
from headrace.engine import Engine
from headrace.engine.bus import Hint, Topic
from headrace.errors import EngineError, JobNotFound, Stale
from headrace.runtime.host import Host
from headrace.runtime.retries import Pauses
from headrace.runtime.watch.entries import EntryReader
from headrace.runtime.writes.batcher import Batcher, Ticket
from headrace.runtime.writes.decision import Decide, write_decision
from headrace.runtime.writes.duplicates import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS
from headrace.runtime.writes.hints import ChangeHints
from headrace.runtime.writes.inserts import ROW_BYTES, Inserts, weight_of
from headrace.runtime.writes.load import Load, size_at_most
from headrace.runtime.writes.notes import NoteProcessor
from headrace.runtime.writes.omissions import log_left_out

__all__ = ["Writer"]

_CANCELLED = Note.CANCELLED
_TIMED = (Verb.POSTPONE, Verb.RETRY, Verb.REPLACE)
"""After these a job may fall due before the next poll."""


def _change_weight(change: Change) -> int:
    job, weight = change.job, ROW_BYTES
    if (text := job.result_text) is not None:
        weight += len(text) if text.isascii() else 4 * len(text)  # as ``size_at_most``, without a call
    if job.error is not None:
        weight += size_at_most(job.error.message) + size_at_most(job.error.traceback)
    if change.inserts:
        weight += sum(map(weight_of, change.inserts))
    return weight


_change_id, _change_number, _append_id = attrgetter("job.id"), attrgetter("job.id.int"), attrgetter("job")


def _append_weight(append: Append) -> int:
    return sum(ROW_BYTES + size_at_most(entry.data) for entry in append.entries)


class Writer:
    """The writers of one session. Submits, finishes, actions and appends never wait for one another."""

    def __init__(
        self, engine: Engine, host: Host, *, timeout: float = 30.0, unwritten: int = Settings().unwritten
    ) -> None:
        """``unwritten``: how many bytes of submits, and how many of what runs came to, may wait to be written."""
        self.engine, self.host = engine, host
        self.load = Load(unwritten)
        """What runs came to and what they added: while it is full, workers begin nothing new."""
        self.followers: list[Callable[[Job], None]] = []
        """Called with every job of a schedule that ended here, when that is stored."""

        self.timeout, self._clock = timeout, host.store_clock
        shared: dict[str, Any] = {"identify": _change_id, "weigh": _change_weight, "distinct": _change_number}
        # A finished job's result must not be given up while the worker lives: finishes are repeated for ever. Of one
        # job, an OwnedJob writes one at a time; those of different jobs may be written in any order.
        self._finishes: Batcher[Change, Verdict] = Batcher(
            self._apply, host, name="finishes", flights=2, load=self.load, **shared
        )
        self._actions: Batcher[Change, Verdict] = Batcher(self._apply, host, name="changes", timeout=timeout, **shared)
        self._appends: Batcher[Append, Kept] = Batcher(
            self._append,
            host,
            name="appends",
            identify=_append_id,
            weigh=_append_weight,
            distinct=_append_id,
            load=self.load,
        )
        self.changes = ChangeHints(engine.bus)
        """Sends hints about the jobs that are changed here."""
        self.entry_reader = EntryReader(engine, host)
        """Reads what runs added."""
        self.notes = NoteProcessor(engine, host, changed=self._send_hints, with_deliveries=self._with_deliveries)
        """Does what follows from changes for other jobs."""
        self.inserts = Inserts(
            engine, host, timeout=timeout, follow=self.notes.ask, apply=self.apply, load=Load(unwritten)
        )
        """Stores new jobs."""

    def now_unless_old(self) -> datetime | None:
        """The store's time, for what is about to be written; None: it was measured long ago, and ``now`` does so
        again."""
        return self.host.clock.now() if self._clock is None else self._clock.now_unless_old()

    async def now(self) -> datetime:
        """The store's time, for what is about to be written; measured again if that was long ago."""
        now = self.now_unless_old()
        if now is None and self._clock is not None:  # not every session beats
            with suppress(EngineError):  # then nothing can be written either, and the writer gets the error
                await self._clock.measure(self.engine.time)
        return now or self.host.clock.now()

    # -- changes

    async def cancel_batch(self, id: UUID, by: str | None) -> Batch | None:
        """Let a batch take no more jobs, and stop those it has; the batch as it was then, None if there is none."""
        found = await self.inserts.surely(lambda: self.engine.families.cancel_batch(id, self.host.clock.now(), by))
        if found is not None:
            await self.notes.at_once()  # the caller may rely on it that no job goes on
        return found

    async def apply(self, change: Change) -> Verdict:
        """Apply an action of a person, a program or the sweeper."""
        return await self._actions.put(change if change.id else replace(change, id=self.host.dice.token()))

    def finish(self, change: Change, ticket: Ticket[Change, Verdict]) -> None:
        """Apply a worker's change without waiting; never refused, repeated until the store replies."""
        if not change.id:
            force_setattr(change, "id", self.host.dice.token())  # in place: nothing else has this change
        ticket.items = (change,)
        self._finishes.add(ticket)

    async def decide(self, id: UUID, verb: Decide) -> Job:
        """Decide from the job as it stands, apply, and decide again whenever it moved; the job that came of it.

        :raises JobNotFound: there is no such job.
        :raises TransitionRefused: the lifecycle refuses the verb.
        :raises Stale: the change was one of a worker that holds the job no longer.
        :raises Duplicate: the dedup key it needs again is held by another job.
        :raises TooManyProfiles: its customer has live jobs of too many pairs of task and requirements.
        :raises Unavailable: the store was away, or the job in a transaction of others, beyond the timeout.
        """
        (job,) = await self.engine.jobs.get([id])
        if job is None:
            raise JobNotFound(id)
        change, verdict = await write_decision(self, job, verb)
        if isinstance(verdict, WasStale):
            raise JobNotFound(id) if verdict.job is None else Stale(verdict.job)
        if change is not None and Note.CANCELLED in change.notes:
            await self.notes.at_once()  # the caller may rely on it that no child goes on
        return verdict.job

    # -- what runs add to their jobs

    async def append(self, append: Append) -> bool:
        """Store entries of a job; False if it has another owner. The owner writes one batch of a job at a time;
        :raises Unstorable: the store refuses them"""
        pauses = Pauses(self.host, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        while (kept := await self._appends.put(append)) == "busy":
            await pauses.sleep()
        return kept == "kept"

    async def _append(self, appends: list[Append]) -> list[Kept]:
        answers = await self.engine.entries.append(appends, self.host.clock.now())
        if self.engine.bus.wanted(Topic.ENTRIES):
            kept = (str(one.job) for one, answer in zip(appends, answers, strict=True) if answer == "kept")
            if names := tuple(kept):
                self.engine.bus.send(Hint(Topic.ENTRIES, names))
        return answers

    async def close(self) -> None:
        """Write what is waiting and settle every ticket."""
        # All at once: a store that is away is waited for once, not once for each batcher.
        batchers = (*self.inserts.batchers, self._actions, self._finishes, self._appends)
        await asyncio.gather(*(batcher.close() for batcher in batchers))
        await self.notes.close()
        self.changes.close()

    async def _with_deliveries(self, job: Job) -> tuple[Job, Sequence[Job]]:
        return await self.inserts.with_deliveries(job)

    async def _apply(self, changes: list[Change]) -> list[Verdict]:
        verdicts = await self.engine.jobs.apply(changes, self.host.clock.now())
        applied, follows = list[Change](), False
        for change, verdict in zip(changes, verdicts, strict=True):
            if isinstance(verdict, Applied):
                applied.append(change)
                job = change.job
                follows = follows or verdict.noted or job.spec.batch is not None or job.waits > 0
                follows = follows or _CANCELLED in change.notes
                if change.inserts:
                    follows = follows or any(one.waits for one in change.inserts)
                    log_left_out(verdict.left_out)
        self._send_hints(applied)
        if follows:
            self.notes.ask()
        return verdicts

    def _send_hints(self, changes: Sequence[Change]) -> None:
        """Send the hints that these changes call for."""
        self.changes.tell(one.job for one in changes)
        bus, hints = self.engine.bus, dict[Topic, set[str]]()
        hint_ends, followers = bus.wanted(Topic.ENDED), self.followers
        if bus.wanted(Topic.FREED) and (freed := {one.job.queue for one in changes if not one.job.held}):
            hints[Topic.FREED] = freed
        for change in changes:
            if change.inserts:
                hints.setdefault(Topic.READY, set()).update(one.spec.queue for one in change.inserts)
            job = change.job
            if job.finished_at is not None:
                if hint_ends:
                    hints.setdefault(Topic.ENDED, set()).add(str(job.id))
                if followers and job.spec.schedule is not None:
                    for follow in followers:
                        follow(job)
            elif job.status is Status.QUEUED or change.verb in _TIMED:
                self._hint_ready(job, hints)
            elif change.verb is Verb.CANCEL:
                hints.setdefault(Topic.CANCEL, set()).add(str(job.id))
            elif change.verb in (Verb.PROGRESS, Verb.START):
                hints.setdefault(Topic.PROGRESS, set()).add(str(job.id))
        for topic, names in hints.items():
            bus.send(Hint(topic, tuple(names)))

    def _hint_ready(self, job: Job, hints: dict[Topic, set[str]]) -> None:
        hints.setdefault(Topic.READY, set()).add(job.queue)
        if job.act_by is not None and expires_soon(job, self.engine.rules):
            hints[Topic.DEADLINE] = set()
