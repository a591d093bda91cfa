"""How jobs are written: submits, finishes and acts as lanes of group commit, with hints after success."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from headrace.bus import Hint, Topic
from headrace.core.batch import Batch
from headrace.core.change import Applied, Change, Conflict, Verdict
from headrace.core.entry import Append, Kept
from headrace.core.family import Note, note_of
from headrace.core.job import Job
from headrace.core.status import Status, Verb
from headrace.engine import Duplicated, Engine, InsertAnswer, Inserted, Refused
from headrace.errors import Duplicate, JobNotFound, Unavailable
from headrace.host import Host
from headrace.runtime.batcher import MAX_ROWS, Batcher, Ticket
from headrace.runtime.tails import Tails
from headrace.runtime.teller import Teller

__all__ = ["Lanes"]

_ROW = 400
"""About what a row weighs beside its payload or result."""

_SUBMITS_WAITING = 20_000
_TRIES = 50
_CANCEL = Verb.CANCEL
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


def _insert_weight(job: Job) -> int:
    return _ROW + len(job.payload_text)


def _change_weight(change: Change) -> int:
    return _ROW + len(change.job.result_text or "")


def _job_id(job: Job) -> UUID:
    return job.id


def _job_number(job: Job) -> int:
    return job.id.int  # hashed by the interpreter itself, which a UUID is not


def _change_id(change: Change) -> UUID:
    return change.job.id


def _change_number(change: Change) -> int:
    return change.job.id.int


def _append_weight(append: Append) -> int:
    return sum(_ROW + len(entry.data) for entry in append.entries)


def _append_id(append: Append) -> UUID:
    return append.job


_Lot = tuple[Batch, Sequence[Job]]
"""A batch and the jobs that are written with it."""


def _lot_weight(lot: _Lot) -> int:
    return sum(_insert_weight(job) for job in lot[1])


def _lot_id(lot: _Lot) -> UUID:
    return lot[0].id


class Lanes:
    """The writers of one session. Submits, keyed submits, finishes, acts and appends never wait for one another."""

    def __init__(self, engine: Engine, host: Host, *, patience: float = 30.0) -> None:
        self.engine, self.host = engine, host
        self.followers: list[Callable[[Job], None]] = []
        """Told of every job of a schedule that was ended here, when that is stored."""

        def submits(name: str) -> Batcher[Job, InsertAnswer]:
            return Batcher(
                self._insert,
                host,
                name=name,
                identify=_job_id,
                weigh=_insert_weight,
                distinct=_job_number,
                capacity=_SUBMITS_WAITING,
                patience=patience,
            )

        def changes(name: str, patience: float | None, flights: int = 1) -> Batcher[Change, Verdict]:
            return Batcher(
                self._apply,
                host,
                name=name,
                identify=_change_id,
                weigh=_change_weight,
                distinct=_change_number,
                patience=patience,
                flights=flights,
            )

        self._patience = patience
        self._plain, self._keyed, self._related, self._blocked = (
            submits("submits"),
            submits("keyed submits"),
            submits("related submits"),
            submits("blocked submits"),
        )
        self._batches: Batcher[_Lot, list[InsertAnswer]] = Batcher(
            self._insert_lots, host, name="batches", identify=_lot_id, weigh=_lot_weight, patience=patience
        )
        # A finished job's result must not be given up while the worker lives: finishes are repeated for ever. Of one
        # job, a Hold writes one at a time; those of different jobs may be written in any order.
        self._finishes, self._acts = changes("finishes", None, flights=2), changes("changes", patience)
        self._appends: Batcher[Append, Kept] = Batcher(
            self._append, host, name="appends", identify=_append_id, weigh=_append_weight, distinct=_append_id
        )
        self.tails = Tails(engine, host)
        """How what runs added is read again."""
        self.teller = Teller(engine, host, changed=self._tell_of, insert=self.insert)
        """How what follows from changes is done."""

    # -- submits

    async def insert(self, job: Job) -> Inserted | Duplicated:
        """Store one job."""
        return await self._accepted(job, await self._lane([job]).put(job))

    def _lane(self, jobs: Sequence[Job]) -> Batcher[Job, InsertAnswer]:
        """Where these are written: what other jobs must be looked at for is kept apart from the rest."""
        specs = {id(job.spec): job.spec for job in jobs}.values()
        if any(spec.dedup is not None for spec in specs):
            return self._keyed
        return self._related if any(spec.parent or spec.after or spec.batch for spec in specs) else self._plain

    async def insert_many(self, jobs: Sequence[Job]) -> list[Inserted | Duplicated]:
        """Store jobs: up to 1,000 in one atomic write, more in chunks of that size, repeatable by id."""
        answers: list[Inserted | Duplicated] = []
        for start in range(0, len(jobs), MAX_ROWS):
            chunk = jobs[start : start + MAX_ROWS]
            answers += await self._all_accepted(chunk, await self._lane(chunk).put_many(chunk))
        return answers

    async def insert_batch(self, batch: Batch, jobs: Sequence[Job]) -> list[Inserted | Duplicated]:
        """Store a batch with its jobs: up to 1,000 in one atomic write; more in chunks, and it is sealed after them."""
        first, rest = jobs[:MAX_ROWS], jobs[MAX_ROWS:]
        accepted = await self._whole(replace(batch, sealed=not rest), first)
        if rest:
            accepted += await self.insert_many(rest)
            await self._sealed(batch.id)
        self.teller.ask()  # it may have no jobs, or all may have ended
        return accepted

    async def _whole(self, batch: Batch, jobs: Sequence[Job]) -> list[Inserted | Duplicated]:
        """A batch and jobs of it, all or none; what others hold for the moment is waited for."""
        pause, until = _FIRST_PAUSE, self.host.clock.monotonic() + self._patience
        while True:
            answers = await self._batches.put((batch, jobs))
            refused = next((answer.error for answer in answers if isinstance(answer, Refused)), None)
            if refused is None:
                return [answer for answer in answers if not isinstance(answer, Refused)]
            if not isinstance(refused, Unavailable) or self.host.clock.monotonic() > until:
                raise refused
            await self.host.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _sealed(self, batch: UUID) -> None:
        pause, until = _FIRST_PAUSE, self.host.clock.monotonic() + self._patience
        while True:
            try:
                await self.engine.seal(batch, self.host.clock.now())
                return
            except Unavailable:
                if self.host.clock.monotonic() > until:
                    raise
            await self.host.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _insert_lots(self, lots: list[_Lot]) -> list[list[InsertAnswer]]:
        answers = [await self.engine.insert(jobs, self.host.clock.now(), batch) for batch, jobs in lots]
        self._tell_ready(job for _, jobs in lots for job in jobs)
        return answers

    async def _all_accepted(self, jobs: Sequence[Job], answers: list[InsertAnswer]) -> list[Inserted | Duplicated]:
        return [
            await self._accepted(job, answer) if isinstance(answer, Refused) else answer
            for job, answer in zip(jobs, answers, strict=True)
        ]

    async def _accepted(self, job: Job, answer: InsertAnswer) -> Inserted | Duplicated:
        """The answer, once there is one: a key in a transaction that is still open is waited for, apart from others."""
        pause, until = _FIRST_PAUSE, self.host.clock.monotonic() + self._patience
        while isinstance(answer, Refused):
            if not isinstance(answer.error, Unavailable) or self.host.clock.monotonic() > until:
                raise answer.error
            await self.host.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            answer = await self._blocked.put(job)
        return answer

    async def _insert(self, jobs: list[Job]) -> list[InsertAnswer]:
        answers = await self.engine.insert(jobs, self.host.clock.now())
        self._tell_ready(jobs)
        return answers

    def _tell_ready(self, jobs: Iterable[Job]) -> None:
        # A waiting fetcher also wants to hear of a deferred job: it may fall due before the next poll.
        queues, waiting = set[str](), False
        for job in jobs:
            queues.add(job.spec.queue)
            waiting = waiting or job.waits > 0
        self.engine.bus.send(Hint(Topic.READY, tuple(queues)))
        if waiting:
            self.teller.ask()  # those waited for may have ended already

    # -- changes

    async def apply(self, change: Change) -> Verdict:
        """Apply an act of a person, a program or the sweeper."""
        return await self._acts.put(self._stamped(change))

    def finish(self, change: Change, ticket: Ticket[Change, Verdict]) -> None:
        """Apply a worker's change without waiting; never refused, repeated until the store answers."""
        ticket.items = (self._stamped(change),)
        self._finishes.add(ticket)

    async def decide(self, id: UUID, verb: Callable[[Job, datetime], Change | None]) -> Job:
        """Decide from the job as it stands, apply, and decide again whenever it moved; the job that came of it.

        :raises JobNotFound: there is no such job.
        :raises TransitionRefused: the lifecycle refuses the verb.
        :raises Duplicate: the dedup key it needs again is held by another job.
        :raises Unavailable: the store was away, or the job in a transaction of somebody's, for longer than is waited.
        """
        job = (await self.engine.get([id]))[0]
        moves, pause, until = 0, _FIRST_PAUSE, self.host.clock.monotonic() + self._patience
        while moves < _TRIES:
            if job is None:
                raise JobNotFound(id)
            change = verb(job, self.host.clock.now())
            if change is None:
                return job
            verdict = await self.apply(change)
            if isinstance(verdict, Applied):
                if Note.CANCELLED in note_of(change):
                    await self.teller.at_once()  # whoever cancels may rely on it that no child goes on unasked
                return verdict.job
            if isinstance(verdict, Conflict) and verdict.holder is not None:
                raise Duplicate(verdict.holder)
            if isinstance(verdict, Conflict) and verdict.job.rev == job.rev:
                # It has not moved: a transaction that is still open holds it, or the key it needs.
                if self.host.clock.monotonic() > until:
                    raise Unavailable(f"job {id} is in a transaction that is still open: nothing was changed", ids=[id])
                await self.host.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                moves, pause = moves + 1, _FIRST_PAUSE
            job = verdict.job
        raise Unavailable(f"job {id} changed {_TRIES} times while a decision about it was being written")

    # -- what runs add to their jobs

    async def append(self, append: Append) -> bool:
        """Keep entries of a job; False if it has another owner. One write of a job at a time is its owner's to see to.

        :raises Unstorable: the store refuses them
        """
        pause = _FIRST_PAUSE
        while (kept := await self._appends.put(append)) == "busy":
            await self.host.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        return kept == "kept"

    async def _append(self, appends: list[Append]) -> list[Kept]:
        answers = await self.engine.append(appends, self.host.clock.now())
        if self.engine.bus.wanted(Topic.ENTRIES):
            kept = (str(one.job) for one, answer in zip(appends, answers, strict=True) if answer == "kept")
            if names := tuple(kept):
                self.engine.bus.send(Hint(Topic.ENTRIES, names))
        return answers

    async def close(self) -> None:
        """Write what is waiting and answer everybody."""
        # All at once: a store that is away is waited for once, not once for each lane.
        submits = (self._plain, self._keyed, self._related, self._blocked, self._batches)
        lanes = (*submits, self._acts, self._finishes, self._appends)
        await asyncio.gather(*(lane.close() for lane in lanes))
        await self.teller.close()

    def _stamped(self, change: Change) -> Change:
        return change if change.id else replace(change, id=self.host.dice.token())

    async def _apply(self, changes: list[Change]) -> list[Verdict]:
        verdicts = await self.engine.apply(changes, self.host.clock.now())
        applied, follows = list[Change](), False
        for change, verdict in zip(changes, verdicts, strict=True):
            if isinstance(verdict, Applied):
                applied.append(change)
                job = change.job
                follows = follows or verdict.noted or job.spec.batch is not None or job.waits > 0
                follows = follows or (change.verb is _CANCEL and Note.CANCELLED in note_of(change))
        self._tell_of(applied)
        if follows:
            self.teller.ask()
        return verdicts

    def _tell_of(self, changes: Sequence[Change]) -> None:
        """Give hints of what was changed."""
        bus, news = self.engine.bus, dict[Topic, set[str]]()
        tell_ends, followers = bus.wanted(Topic.ENDED), self.followers
        if bus.wanted(Topic.FREED) and (freed := {one.job.spec.queue for one in changes if not one.job.held}):
            news[Topic.FREED] = freed
        for change in changes:
            job = change.job
            if job.finished_at is not None:
                if tell_ends:
                    news.setdefault(Topic.ENDED, set()).add(str(job.id))
                if followers and job.spec.schedule is not None:
                    for follow in followers:
                        follow(job)
            elif job.status is Status.QUEUED:
                news.setdefault(Topic.READY, set()).add(job.spec.queue)
            elif change.verb is Verb.CANCEL:
                news.setdefault(Topic.CANCEL, set()).add(str(job.id))
            elif change.verb in (Verb.PROGRESS, Verb.START):
                news.setdefault(Topic.PROGRESS, set()).add(str(job.id))
        for topic, names in news.items():
            bus.send(Hint(topic, tuple(names)))
