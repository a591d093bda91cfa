"""The relations of jobs in a memory store (which waits for which, children, batches), and the notes to be processed."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime
from heapq import nlargest
from uuid import UUID

from msgspec.structs import replace

from headrace.core.batch import Batch, cancelled, cursor_at, is_over, is_silent, newest_first, refusal_of_member, sealed
from headrace.core.change import Applied, BatchTally, Change, LeftOut, Note, Verdict
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle import family
from headrace.core.lifecycle.decision import tally_of_new
from headrace.core.limits.rate import micros
from headrace.core.query import Page
from headrace.core.status import Status
from headrace.engine import Processed
from headrace.errors import HeadraceError

__all__ = ["Relations"]


def _made(batch: Batch) -> tuple[int, UUID]:
    return micros(batch.created_at), batch.id


class Relations:
    """Which job waits for which, children, batches, and stored notes."""

    def __init__(self, records: Mapping[UUID, Job], rules: Rules) -> None:
        self._records, self._rules = records, rules
        self.batches: dict[UUID, Batch] = {}
        self._unsettled: dict[UUID, None] = {}
        """The batches that are not settled, in the order they came."""
        self._waiting: dict[UUID, list[UUID]] = {}
        """By job, the jobs that were stored to wait for it, in the order they came."""
        self._children: dict[UUID, list[UUID]] = {}
        self._members: dict[UUID, list[UUID]] = {}
        self.notes: deque[tuple[Note, UUID, int]] = deque()
        """Notes, each with its job or batch, and the order number of the last job that it was processed for."""

    def refusal(self, job: Job, coming: Container[UUID] = ()) -> HeadraceError | None:
        """Return why a new job is refused for its relatives, which are stored or ``coming``; None if it is not."""
        spec = job.spec
        if spec.parent is not None and (parent := self._records.get(spec.parent)) is not None:
            why = family.refusal(parent.id, parent.status, parent.cancel_requested_at is not None, job)
            if why is not None:
                return why
        if spec.batch is not None and (batch := self.batches.get(spec.batch)) is not None:
            why = refusal_of_member(batch.id, batch.cancelled_at is not None, job)
            if why is not None:
                return why
        missing = next((id for id in spec.after if id not in self._records and id not in coming), None)
        return None if missing is None else family.unknown_parent(missing)

    def add(self, job: Job) -> None:
        """Store the relations of a job that was stored."""
        spec = job.spec
        for id in spec.after:
            self._waiting.setdefault(id, []).append(job.id)
        if spec.parent is not None:
            self._children.setdefault(spec.parent, []).append(job.id)
        if spec.batch is not None:
            self._members.setdefault(spec.batch, []).append(job.id)
            self._count(spec.batch, tally_of_new(job))
            if (batch := self.batches.get(spec.batch)) is not None:
                self.batches[batch.id] = replace(batch, touched_at=max(batch.touched_at, job.updated_at))
        self.notes.extend((note, job.id, 0) for note in family.note_of_new(job))

    def follow(self, change: Change) -> bool:
        """Store the notes of a change, and count it in its batch; return whether others wait for the job."""
        job, tied = change.job, False
        for note in change.notes:
            if note is not Note.ENDED or job.id in self._waiting:
                self.notes.append((note, job.id, 0))
                tied = tied or note is Note.ENDED
        if change.tally is not None and job.spec.batch is not None:
            self._count(job.spec.batch, change.tally)
        return tied

    def process_notes(self, now: datetime, limit: int, apply: Callable[[Change], Verdict]) -> Processed:
        """Process notes in rounds; the changes of one round may leave notes for the next."""
        changes: list[Change] = []
        left_out: list[LeftOut] = []
        while self.notes and limit > 0:
            hearing = self._hearing(limit)
            limit -= max(1, len(hearing))
            # All changes are decided before any is applied: a child of a cancelled parent is not released first.
            parent_cancelled = {id for note, id in hearing if note is Note.CANCELLED}
            stopped = {id for note, id in hearing if note is Note.STOPPED}
            concerned = dict.fromkeys(id for _, id in hearing)
            before = {id: job for id in concerned if (job := self._records.get(id)) is not None}
            follows = (self._follows(job, id in parent_cancelled, id in stopped, now) for id, job in before.items())
            decided = [change for change in follows if change is not None]
            for change in decided:
                if isinstance(verdict := apply(change), Applied):
                    left_out += verdict.left_out
            changes += decided
            ended = (id for id, job in before.items() if id in parent_cancelled and family.passes_on(job))
            self.notes.extend((Note.CANCELLED, id, 0) for id in ended)
        return Processed(tuple(changes), tuple(self._over(now)), bool(self.notes), tuple(left_out))

    def _hearing(self, limit: int) -> list[tuple[Note, UUID]]:
        """Return the jobs that the first notes concern, up to the limit, and remove these notes."""
        hearing: list[tuple[Note, UUID]] = []
        while self.notes and len(hearing) < limit:
            note, id, heard = self.notes.popleft()
            concerned = self._concerned(note, id)
            # By order number and not by count: some jobs may have been pruned since.
            start = bisect_right(concerned, heard, key=self._number)
            part = concerned[start : start + limit - len(hearing)]
            if start + len(part) < len(concerned):
                self.notes.appendleft((note, id, self._number(part[-1])))
            hearing += [(note, one) for one in part]
        return hearing

    def _number(self, id: UUID) -> int:
        return self._records[id].seq

    def _concerned(self, note: Note, id: UUID) -> list[UUID]:
        if note is Note.WAITS:
            return [id] if id in self._records else []
        if note is Note.ENDED:
            return self._waiting.get(id, [])
        if note is Note.STOPPED:
            return self._members.get(id, [])
        parent = self._records.get(id)
        return self._children.get(id, []) if parent is None or family.still_cancelled(parent) else []

    def _follows(self, job: Job, parent_cancelled: bool, stopped: bool, now: datetime) -> Change | None:
        batch = self.batches.get(job.spec.batch) if stopped and job.spec.batch is not None else None
        parents = [self._status(parent) for parent in job.spec.after]
        return family.follow(job, parents, now, self._rules, parent_cancelled=parent_cancelled, batch=batch)

    def _status(self, id: UUID) -> Status | None:
        job = self._records.get(id)
        return None if job is None else job.status

    # -- batches

    def _count(self, id: UUID, tally: BatchTally) -> None:
        if (batch := self.batches.get(id)) is not None:
            self.batches[id] = replace(batch, tally=batch.tally.plus(tally))

    def make(self, batch: Batch) -> None:
        """Store a batch, unless it is stored already."""
        if batch.id not in self.batches:
            self.batches[batch.id] = batch
            if not batch.settled:
                self._unsettled[batch.id] = None

    def _over(self, now: datetime) -> Iterable[Batch]:
        for id in self._unsettled:
            batch = self.batches[id]
            if is_silent(batch, now, self._rules):
                batch = self.batches[id] = replace(batch, sealed=True, abandoned=True)
            if is_over(batch):
                over = self.batches[id] = replace(batch, ended_at=batch.ended_at or now)
                yield over

    def find(self, limit: int, cursor: str | None, customer: str | None = None) -> Page[Batch]:
        """Return batches, newest first; of this customer, or all."""
        below = cursor_at(cursor)
        older = (one for one in self.batches.values() if _made(one) < below and customer in (None, one.customer))
        return newest_first(nlargest(limit + 1, older, key=_made), limit)

    def seal(self, id: UUID, now: datetime) -> bool:
        """Seal a batch; return whether it is stored."""
        batch = self.batches.get(id)
        if batch is not None:
            self.batches[id] = sealed(batch, now)
        return batch is not None

    def cancel(self, id: UUID, now: datetime, by: str | None) -> Batch | None:
        """Cancel a batch: it takes no more jobs, and a note is stored for those that it has."""
        batch = self.batches.get(id)
        if batch is not None and (made := cancelled(batch, now, by)) is not None:
            batch = self.batches[id] = made
            self.notes.append((Note.STOPPED, id, 0))
        return batch

    def settle(self, id: UUID) -> None:
        """Mark a batch as settled: what follows its end was submitted."""
        if (batch := self.batches.get(id)) is not None:
            self.batches[id] = replace(batch, settled=True)
            self._unsettled.pop(id, None)

    # -- removal

    def waited_for(self, id: UUID) -> bool:
        """Return whether a live job waits for this one, or waited and may read its result."""
        return any((job := self._records.get(other)) and not job.ended for other in self._waiting.get(id, ()))

    def needed(self, id: UUID, before: datetime) -> bool:
        """Return whether this ended job is to be kept for another."""
        job = self._records[id]
        late = job.finished_at is not None and job.finished_at > before
        looked_for = job.spec.parent is not None and family.may_be_looked_for(self._status(job.spec.parent))
        return (late and looked_for) or self.waited_for(id)

    def forget(self, gone: Iterable[Job], before: datetime) -> None:
        """Forget the relations of jobs that were pruned, and batches that ended before."""
        for job in gone:
            self._waiting.pop(job.id, None)
            spec = job.spec
            named = ((self._waiting, spec.after), (self._children, (spec.parent,)), (self._members, (spec.batch,)))
            for others, ids in named:
                for id in ids:
                    # What is known of a removed job or batch begins anew with the next one that names it.
                    if id is not None and job.id in others.get(id, ()):
                        others[id].remove(job.id)
        # The children of a parent are known for longer than itself: the note of its cancel may not be processed yet.
        for id in {id for job in gone for id in (job.id, job.spec.parent) if id is not None}:
            if id not in self._records and not self._children.get(id):
                self._children.pop(id, None)
        for id in [one.id for one in self.batches.values() if one.settled and (one.ended_at or before) <= before]:
            del self.batches[id]
            self._members.pop(id, None)
