"""Workers: which are alive, and what each of them holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec
from msgspec import structs
from msgspec.structs import replace

from headrace.core.codec.record import Record
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.departure import MAX_LOST_IDS, Departure
from headrace.core.lifecycle.liveness import silent_since
from headrace.core.limits.rate import micros
from headrace.core.matching.customers import Customers
from headrace.core.matching.match import by_service
from headrace.core.query import Page
from headrace.core.stats.own_tasks import runs_only_own
from headrace.core.stats.rollup import Rollup
from headrace.core.stats.utilisation import Utilisation
from headrace.engine.values import MAX_BATCH

__all__ = [
    "Alive",
    "Attended",
    "Beat",
    "Dead",
    "Gone",
    "GoneWorker",
    "Renewed",
    "Watched",
    "WorkerInfo",
    "WorkerRow",
    "Workers",
    "last_gone_first",
]


class Alive(msgspec.Struct, frozen=True, tag=True):
    """The reply to a living worker's beat."""

    beats: int
    cancels: tuple[UUID, ...]
    """Jobs it holds with a requested cancel."""
    unknown: tuple[Job, ...]
    """Jobs the store gave it more than two beats ago that the beat did not name."""
    profiles_rev: int
    settings_rev: int
    now: datetime | None = None
    """The store's own time, as ``Engine.time`` returns it: the beat measures it in passing."""


class Dead(msgspec.Struct, frozen=True, tag=True):
    """The worker was buried, or never registered: it owns nothing and must register again."""


class WorkerInfo(msgspec.Struct, Record, frozen=True, kw_only=True):
    """The identity of a worker; made anew at every start."""

    id: UUID
    host: str
    pid: int
    started_at: datetime
    concurrency: int
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    offers: dict[str, Any] = {}
    version: str = ""
    lease: float | None = None
    """Seconds of silence after which it counts as silent, and, if it was watched for so long, as dead; None: the
    reader's own lease."""
    proof: str | None = None
    """What ``attend`` returned before it registered."""
    name: str | None = None
    """Its own name, as a worker behind a hub has; None: it is known by its host and its process."""
    customers: Customers | None = None
    """The customers of the jobs it takes; None: all."""

    @property
    def shown(self) -> str:
        """Return the worker as people know it: by its name, or by its id."""
        return self.name or str(self.id)

    @property
    def described(self) -> str:
        """Return the worker for a sentence, with its location, if known: one behind a hub by its own name."""
        if self.name:
            return f"worker {self.name} ({self.id})"
        return f"worker {self.id} on {self.host} (pid {self.pid})" if self.host else f"worker {self.id}"

    @property
    def runs_services(self) -> bool:
        """Return whether it names no tasks, as one behind a hub may: then it runs jobs that require its services."""
        return self.name is not None and not self.tasks

    @property
    def own(self) -> bool:
        """Return whether it runs nothing but headrace's own tasks, as the worker of a hub that delivers webhooks."""
        return runs_only_own(self.tasks)

    def runs(self, task: str, requires: Mapping[str, Any]) -> bool:
        """Return whether it runs jobs of this task at all, whatever else they require."""
        return by_service(task, requires) if self.runs_services else task in self.tasks


class Renewed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker declares about itself by now; the fields are those of ``WorkerInfo``."""

    concurrency: int
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    offers: dict[str, Any] = {}
    customers: Customers | None = None


class Beat(msgspec.Struct, Record, frozen=True, kw_only=True):
    """A sign of life: what the worker holds, and its state."""

    held: tuple[UUID, ...] = ()
    state: str = "running"
    """running, draining, or blocked; where workers are shown, also silent or dead."""
    busy: int = 0
    buffered: int = 0
    stuck_threads: int = 0
    """Threads that outlived their attempts."""
    done: int = 0
    """Attempts finished since the start."""
    clock_apart: float = 0.0
    """Seconds that the clock of its machine is ahead of the store's; it only causes a warning."""
    proof: str | None = None
    """What ``attend`` last returned."""
    report: int = 0
    """The number of its report; a worker's numbers rise, and a report without a reply is repeated under its number. 0:
    none."""
    finished: tuple[Rollup, ...] = ()
    """Its report: what it has finished since the last acknowledged report, added up by minute."""
    utilisation: Utilisation = Utilisation()
    """How much of it is used."""
    renewed: Renewed | None = None
    """What it declares about itself by now, if that changed since it registered, as it may behind a hub."""

    @property
    def kept(self) -> Beat:
        """Return what the store keeps as the last beat: the report is stored elsewhere."""
        return self if not self.finished else replace(self, finished=())


class Attended(msgspec.Struct, frozen=True):
    """Something that is held for a worker, and released by the kernel or the server when its process ends."""

    proof: str
    """How other sessions find what is held; only engines read it."""
    descriptor: int | None = None
    """A file descriptor; while a child process has it as well, the worker does not count as gone."""
    judged: bool = True
    """Whether ``gone`` finds out that it was released. If not, the other end reports it, as a hub does for the
    connections of its remote engines; the worker beats at once when it has another proof, or none."""


class Gone(msgspec.Struct, frozen=True):
    """Which workers no longer hold what was held for them."""

    workers: frozenset[UUID] = frozenset()
    by: int = 0
    """Grows when the session that found it was broken; earlier findings say nothing about present ones."""


class Watched(msgspec.Struct, frozen=True):
    """For how long the same beat of a worker was seen, by all its watchers."""

    beats: int
    looks: int
    seconds: float
    """The sum of the spans during which a watcher polled without a gap."""
    grace: float | None = None
    """Its connection to a hub closed without a goodbye: the seconds in which it must beat again; None: it did not. It
    is void with the next beat, like all of this."""


class WorkerRow(msgspec.Struct, Record, frozen=True):
    """A worker as the store knows it."""

    info: WorkerInfo
    beat: Beat
    beats: int
    """The number its last beat raised, which watchers poll."""
    beat_at: datetime
    alive: bool
    """The store has not buried it, nor did it leave; where workers are shown, also: it is not silent."""
    holds: int
    """How many jobs it holds by the store."""
    silent_since: datetime | None = None
    """Its last beat, where workers are shown and that is longer ago than its lease."""
    watched: Watched | None = None
    """What watchers recorded; it counts if it is about the present beat."""

    @property
    def busy(self) -> int:
        """Its slots that are taken by the jobs it holds: as new as those, while its last beat is seconds old."""
        return min(self.holds, self.info.concurrency)

    @property
    def proof(self) -> str | None:
        """What the worker last sent to prove its death by; None: it is judged by polls alone."""
        return self.beat.proof if self.beats else self.info.proof

    def lease(self, rules: Rules) -> float:
        """Return how many seconds it may be silent: its own lease, or that of the rules."""
        return rules.lease if self.info.lease is None else self.info.lease

    @property
    def grace(self) -> float | None:
        """In how many seconds it must beat again since its connection closed; None: it is connected."""
        return self.watched.grace if self.watched is not None and self.watched.beats == self.beats else None

    def as_heard(self, now: datetime, rules: Rules) -> WorkerRow:
        """Return the worker as it is shown: judged by its last beat, since no sweeper may be left to bury it."""
        if self.silent_since is not None:
            return self
        row = self if self.beat.renewed is None else replace(self, info=self.present)
        if not self.alive:
            return replace(row, beat=replace(self.beat, state="dead"))
        since = silent_since(self.beat_at, now, self.lease(rules))
        if since is None:
            return row
        return replace(row, alive=False, silent_since=since, beat=replace(self.beat, state="silent"))

    @property
    def present(self) -> WorkerInfo:
        """The identity of the worker, by what it last declared."""
        renewed = self.beat.renewed
        return self.info if renewed is None else replace(self.info, **structs.asdict(renewed))

    def without_place(self) -> WorkerRow:
        """Return the worker for readers who may not know where it runs, nor the names that others gave."""
        return replace(self, info=replace(self.info, host="", pid=0, name=None if self.info.name is None else ""))

    @property
    def takes(self) -> bool:
        """Return whether it takes jobs: alive, and not about to stop."""
        return self.alive and self.beat.state != "draining"


class GoneWorker(msgspec.Struct, Record, frozen=True):
    """The record of a worker that is gone."""

    row: WorkerRow
    """The worker as the store last knew it; ``holds``: how many jobs it held at its end."""
    departure: Departure
    lost: tuple[UUID, ...] = ()
    """The jobs that it held at its end, oldest first, up to ``MAX_LOST_IDS`` of them."""

    @classmethod
    def of(cls, row: WorkerRow, departure: Departure, held: Sequence[Job]) -> GoneWorker:
        """Return the record of a worker that is gone from now on, with the jobs that it holds."""
        oldest = sorted(held, key=lambda job: job.seq)[:MAX_LOST_IDS]
        last = replace(row, info=row.present, alive=False, holds=len(held), silent_since=None, watched=None)
        return cls(last, departure, tuple(job.id for job in oldest))

    @property
    def place(self) -> tuple[int, UUID]:
        """Its place among the others: the last to go comes first."""
        return micros(self.departure.at), self.row.info.id

    def without_place(self) -> GoneWorker:
        """Return the record for readers who may not know where the worker ran."""
        return replace(self, row=self.row.without_place())


def last_gone_first(found: Sequence[GoneWorker], limit: int) -> Page[GoneWorker]:
    """Return a page of gone workers, given those below its cursor in order, and one more than fit if there is one."""
    items = tuple(found[:limit])
    at, id = items[-1].place if len(found) > limit else (0, None)
    return Page(items, None if id is None else f"{at}-{id}")


class Workers(Protocol):
    """Keeps a row for each worker. A beat writes that row, and no job that it names."""

    gone_after: float
    """Seconds between two findings of ``gone`` after which a worker is dead."""

    async def register(self, info: WorkerInfo, now: datetime) -> None:
        """Store the worker as known and alive, with beat number 0; a known one stays as it is, dead or alive."""

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        """Raise the worker's beat number, store the beat, and reply what the worker should know, if it is alive.

        Of the jobs that the worker holds and that were assigned two beats (``2 * rules.beat`` seconds) ago or earlier,
        those that the beat does not name gain an unnamed beat and are in the reply as ``unknown``; those that it names
        begin again at 0. Younger jobs are left out, since the reply to their claim may still be under way. A repeated
        beat counts as another beat.

        Its report (``finished``) is stored for ``Rollups``, in the same commit, unless this worker has sent a report of
        this number or a higher one before.
        """

    async def beat_many(self, beats: Mapping[UUID, Beat], now: datetime) -> dict[UUID, Alive | Dead]:
        """Do ``beat`` for each of these workers, in one commit; return the reply to each.

        For a process that beats for others, as a hub does: one write, however many they are.
        """

    async def attend(self, worker: UUID) -> Attended | None:
        """Hold something for this worker that is released when this process ends, however it ends; None: cannot.

        It is called before the worker registers and then about once a second, and takes a moment at most: what was lost
        meanwhile is held again, perhaps with another proof. What the session held for another worker it releases.
        Closing the session releases as well.
        """

    async def gone(self, rows: Sequence[WorkerRow]) -> Gone:
        """Return those of these workers for which nothing is held any more, as far as their proofs can be judged here.

        A worker without a proof, or with one of another machine or another run of the server, is not named.
        """

    async def watched(self, worker: UUID, watched: Watched) -> None:
        """Record for how long the worker's beat was seen, if it is still that beat and the worker is alive."""

    async def bury(
        self, worker: UUID, beats: int, *, mass_death: bool = False, departure: Departure | None = None
    ) -> bool:
        """Declare the living worker dead if its beat number is still this one; return whether it was. Its duties are
        free.

        The same commit records whether the jobs that the worker was running (status ``running``) were at least two,
        a suspect among them. A repeated burial leaves this as it was, since some of these jobs may have been taken. It
        also records ``mass_death``: the caller found that others died at the same time. ``Jobs.overdue`` returns both
        with the jobs of this worker.

        From then on no claim of this worker is given anything: see ``Jobs.claim``. Its jobs stay its own until the
        sweeper has taken them, so a result that it writes meanwhile counts. A dead worker stays known until no job
        names it, so that the sweeper finds its jobs.

        With a ``departure`` the same commit stores the record of the worker, as ``GoneWorker.of`` makes it from its row
        and the jobs that it holds.
        """

    async def retire(self, worker: UUID, *, departure: Departure | None = None) -> None:
        """Remove a worker that left in good order: dead at once, its duties free, forgotten when no job names it.

        With a ``departure`` the same commit stores the record of the worker, as ``bury`` does, if it was alive. For a
        holder of duties that is no worker, its duties are free as well, and there is no record.
        """

    async def find_gone(self, limit: int = 50, cursor: str | None = None) -> Page[GoneWorker]:
        """Return the records of workers that are gone, the last to go first (by its end, then its id), paged by
        ``last_gone_first``."""

    async def get_gone(self, worker: UUID) -> GoneWorker | None:
        """Return the record of one worker that is gone; None: there is none."""

    async def forget_gone(self, before: datetime, limit: int = MAX_BATCH) -> int:
        """Remove records of workers that went at this moment or before, the first to go first; return how many."""

    async def list(self) -> list[WorkerRow]:
        """Return every known worker, oldest first; forget the dead that no job names."""
