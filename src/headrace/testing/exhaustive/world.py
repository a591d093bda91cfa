"""The small world: a memory store, what two workers remember, what is on its way, and what has been observed."""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Iterator
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.batch import is_over
from headrace.core.change import Applied, Change, Verdict
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.status import ENDED, Verb
from headrace.engine import Claimed, Dead, OverdueJobs, WorkerInfo
from headrace.engines.memory.documents import Documents
from headrace.engines.memory.families import Families
from headrace.engines.memory.jobs import Jobs
from headrace.engines.memory.relations import Relations
from headrace.engines.memory.state import Session, State
from headrace.engines.memory.workers import Workers
from headrace.testing.exhaustive.copies import Observed, copied
from headrace.testing.exhaustive.scenes import JOBS, RULES, START, Scene

__all__ = ["NAMES", "Held", "Late", "Process", "Violation", "World", "run", "told"]

T = TypeVar("T")

NAMES = "AB"
"""The names of the two workers."""
_LOCK = threading.Lock()


class Violation(Exception):
    """Something that must always hold did not."""


class Held(msgspec.Struct, frozen=True):
    """A job that a worker has, as it knows it."""

    job: Job
    began: datetime | None = None
    """When its handler was called."""
    pending: Change | None = None
    """A write without a reply so far."""
    doing: str = ""
    """What that write does."""
    at: datetime | None = None
    """When it was done."""


class Late(NamedTuple):
    """A write on its way to the store."""

    change: Change | None
    worker: UUID | None = None
    request: int = 0
    """The number of a claim, if there is no change."""
    room: int = 0
    """How many jobs it asks for."""


class Process:
    """What one worker remembers; ``id`` is None while it is down."""

    __slots__ = ("born", "held", "id", "request", "requests")

    def __init__(self, id: UUID | None, born: int = 1) -> None:
        self.id, self.born = id, born
        self.held: dict[UUID, Held] = {}
        self.requests = 0
        self.request: tuple[int, int] | None = None
        """A claim without a reply so far: its number, and how many jobs it asks for."""

    def copy(self) -> Process:
        """Return a process that can be changed without changing this one."""
        made = Process(self.id, self.born)
        made.held, made.requests, made.request = dict(self.held), self.requests, self.request
        return made


class World:
    """The store and its users, at one moment."""

    def __init__(self, scene: Scene, state: State) -> None:
        self.scene, self.state = scene, state
        self.now = START
        self.processes: list[Process] = []
        self.late: Late | None = None
        self.faults = 0
        self.calls: dict[UUID, int] = {}
        """How often the handler of each job was called since it was last retried, but for calls that cost nothing."""
        self.rides: frozenset[tuple[UUID, int]] = frozenset()
        """The calls whose start is not stored, by job and epoch."""
        self.applied: frozenset[int] = frozenset()
        """The changes that are stored."""
        self.begun = 0
        """How many jobs were given to workers since time passed."""
        self.changes = 0

    @classmethod
    def begin(cls, scene: Scene) -> World:
        """Return the world as it is at the beginning of a scene."""
        state = State(RULES)
        state.table.records = Observed()
        state.relations = Relations(state.table.records, RULES)
        world = cls(scene, state)
        for key, value in scene.settings.items():
            run(Documents(world.session).put_setting(key, value, 0))
        _ = state.limits  # read once: the settings do not change
        world.processes = [world.come(at, 1) for at in range(len(NAMES))]
        run(world.jobs.insert(scene.first, START, scene.made_batch()))
        return world

    def copy(self) -> World:
        """Return a world that can be changed without changing this one."""
        made = World.__new__(World)
        made.__dict__ = dict(self.__dict__)
        made.state = copied(self.state)
        made.processes = [process.copy() for process in self.processes]
        made.calls = dict(self.calls)
        return made

    # -- the store

    @property
    def session(self) -> Session:
        """Return an open session on the store."""
        session = Session(self.state, _LOCK)
        session.is_open = True
        return session

    @property
    def jobs(self) -> Jobs:
        """Return the role ``jobs`` of the store."""
        return Jobs(self.session)

    @property
    def families(self) -> Families:
        """Return the role ``families`` of the store."""
        return Families(self.session)

    @property
    def workers(self) -> Workers:
        """Return the role ``workers`` of the store."""
        return Workers(self.session)

    @property
    def overdue(self) -> OverdueJobs:
        """Return what the sweeper finds now."""
        return run(self.jobs.overdue(self.now))

    @property
    def has_notes(self) -> bool:
        """Return whether notes, or the end of a batch, are to be processed."""
        relations = self.state.relations
        return bool(relations.notes) or any(is_over(one) and not one.settled for one in relations.batches.values())

    @property
    def silent(self) -> Iterator[UUID]:
        """Yield the workers that are alive in the store and in no process, if that can matter: they hold something, or
        a claim is on its way."""
        here = {process.id for process in self.processes}
        late = None if self.late is None else self.late.worker
        for id, row in self.state.workers.items():
            if row.alive and id not in here and (id == late or id in self.state.table.held):
                yield id

    def record(self, at: int) -> Job | None:
        """Return a job as stored."""
        return self.state.table.records.get(JOBS[at])

    def come(self, who: int, born: int) -> Process:
        """Return a new process, which is registered."""
        id = UUID(int=100 * (who + 1) + born)
        info = WorkerInfo(id=id, host=NAMES[who], pid=born, started_at=self.now, concurrency=1)
        run(self.workers.register(info, self.now))
        return Process(id, born)

    def bury(self, id: UUID) -> None:
        """Bury a worker that has not beaten since it was looked at."""
        if not run(self.workers.bury(id, self.state.workers[id].beats)):
            raise Violation("a worker was not buried, though it had not beaten since")
        if self.state.is_alive(id):
            raise Violation("a buried worker is alive")

    def claim(self, worker: UUID, request: int, room: int) -> Claimed | Dead:
        """Claim so many jobs, and check that no more were given."""
        records = self.state.table.records
        held = {id for id, job in records.items() if job.worker == worker}
        profiles = frozenset(profile.id for profile in self.state.table.profiles.values())
        free = int(room == self.scene.claims)
        ask = ClaimRequest(n=room, free=free, profiles=profiles, accept=not self.scene.offered)
        reply = run(self.jobs.claim(worker, ask, request, self.now))
        given = {id for id, job in records.items() if job.worker == worker} - held
        if given and isinstance(reply, Dead):
            raise Violation("a dead worker was given jobs")
        if sum((job.worker, job.claim) == (worker, request) for job in records.values()) > room:
            raise Violation("one claim gave more jobs than it asked for")
        self.begun += len(given)
        return reply

    # -- changes

    def stamped(self, change: Change) -> Change:
        """Return the change with an id of its own."""
        self.changes += 1
        return replace(change, id=self.changes)

    def apply(self, change: Change) -> Verdict:
        """Apply a change, and check that the verdict is true."""
        before = self.state.table.records.get(change.job.id)
        (verdict,) = run(self.jobs.apply([change], self.now))
        after = self.state.table.records.get(change.job.id)
        if after is not before:
            if change.id in self.applied:
                raise Violation(f"a repeated {change.verb} was stored once more: {told(after)}")
            if not isinstance(verdict, Applied):
                raise Violation(f"a refused {change.verb} was stored: {told(after)}")
            self.applied |= {change.id}
            self._observe(change)
        elif isinstance(verdict, Applied) and change.id not in self.applied and not self._is_recorded(change):
            raise Violation(f"a {change.verb} was acknowledged, and not stored: {told(after)}")
        return verdict

    def _is_recorded(self, change: Change) -> bool:
        """Return whether another decision on the same end of the same attempt is stored."""
        ours = change.attempt
        kept = None if ours is None else self.state.table.attempt(change.job.id, ours.number)
        if ours is None or kept is None:
            return False
        same = kept.count > 1 or (kept.worker, kept.epoch) == (ours.worker, ours.epoch)
        return same and (kept.outcome, kept.finished_at) == (ours.outcome, ours.finished_at)

    def _observe(self, change: Change) -> None:
        """Note what a stored change says about calls of the handler."""
        id = change.job.id
        if change.verb is Verb.RETRY:
            self.calls[id] = 0
        elif change.verb in (Verb.SNOOZE, Verb.RELEASE) and change.attempt is not None:
            self.calls[id] = self.calls.get(id, 0) - 1
        if change.epoch is not None and (change.verb is Verb.START or change.attempt is not None):
            self.rides -= {(id, change.epoch)}


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a verb of the memory engine, which never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the memory engine waited")


def told(job: Job | None) -> str:
    """Return a job in a line."""
    if job is None:
        return "a job that is gone"
    owner = "" if job.worker is None else f" of {NAMES[job.worker.int // 100 - 1]}{job.worker.int % 100}"
    reason = "" if job.reason is None else f" ({job.reason})"
    asked = "" if job.cancel_requested_at is None or job.status in ENDED else ", cancel requested"
    return (
        f"job {job.id.int} {job.status}{reason}{owner}{asked}, rev {job.rev}, epoch {job.epoch}, attempt {job.attempt},"
        f" charged {job.charged}"
    )
