"""A worker behind this hub, as the hub knows it: who it is, what it holds, and when it was last heard."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from headrace.core.lifecycle.liveness import SoleVoice
from headrace.core.matching.fit import Loaded
from headrace.core.stats.utilisation import Meter, Utilisation
from headrace.core.status import Status
from headrace.engine import Renewed
from headrace.http.problems import Problem
from headrace.hub.auth.caller import Caller
from headrace.hub.remote_workers.capabilities import Wants
from headrace.hub.remote_workers.held_job import HeldJob

__all__ = ["RemoteWorker", "WorkerLink", "gone"]

_MAX_REMEMBERED_REPLIES = 64
"""Maximum of replies that are kept for repeated messages."""


class WorkerLink(Protocol):
    """A connection over which messages can be sent to a worker at any time."""

    def push(self, message: Any) -> None:
        """Send this as soon as the worker takes it."""
        ...


def gone() -> Problem:
    """Return the reply to a worker that the store has declared dead, or does not know."""
    detail = "it was silent for too long, or is not known: register anew"
    return Problem(410, "worker-gone", "The worker counts as dead", detail)


class RemoteWorker:
    """One registration. Another hub may know the same one: what it holds is what the store says."""

    def __init__(self, id: UUID, caller: Caller, now: float, *, name: str | None = None) -> None:
        self.id, self.name, self.key = id, name, caller.key
        self._wants: Wants | None = None
        self.like = b""
        """The same for workers that are offered the same."""
        self.said: tuple[Any, ...] = ()
        """What it last said of itself with a claim."""
        self.concurrency = 1
        self.held: dict[UUID, HeldJob] = {}
        """The jobs that it was given here, or has sent messages about, as far as they are known."""
        self.given = 0
        """Claims without a reply: each may become a held job."""
        self.asked = set[int]()
        """The numbers of these. A held job that has one of them is counted with its claim."""
        self._links: list[WorkerLink] = []
        self.parted = False
        """Whether its last connection was cut off and nothing was heard of it here since; so it has none here."""
        self.voice = SoleVoice()
        self.beaten_at = now
        """When this hub last beat for it, or first knew it."""
        self.heard_at, self.heard = now, True
        """When it was last heard, and whether that was since the last beat."""
        self.named: tuple[UUID, ...] | None = None
        """The jobs that it has, by its last message; None: it has not said."""
        self.named_at = now
        self.state, self.load, self.done, self.failed = "running", 0.0, 0, 0
        self.claimed_at: datetime | None = None
        self.polled_at: datetime | None = None
        """When it was last given a job."""
        self.loaded: Loaded | None = None
        """What it has loaded, judging by its last job."""
        self.registered: Renewed | None = None
        """What it said of itself when it registered here; None: it did so elsewhere."""
        self._meter = Meter(now)
        self.leaving = False
        """Whether it is to leave: it is given no more jobs."""
        self.buried = False
        """Whether the store has declared it dead."""
        self._answers: dict[tuple[UUID, int, str], Any] = {}
        self._over: dict[UUID, int] = {}

    @property
    def who(self) -> tuple[str | None, str | None]:
        """Its key and its own name, which are the same when it registers again."""
        return self.key, self.name

    @property
    def wants(self) -> Wants | None:
        """Which jobs it may be given; None: it is known here by a lease alone, and cannot claim."""
        return self._wants

    @wants.setter
    def wants(self, wants: Wants) -> None:
        self._wants, self.like = wants, wants.key
        if wants.customers is not None and wants.customers.strict:
            self.like += self.id.bytes  # what it may be given depends on what it holds

    @property
    def says(self) -> Renewed | None:
        """What it says of itself by now; None: that is not known here."""
        wants = self._wants
        if wants is None:
            return None
        return Renewed(
            concurrency=self.concurrency,
            tasks=tuple(sorted(wants.tasks or ())),
            queues=wants.queues,
            offers=wants.offers,
            customers=wants.customers,
        )

    @property
    def renewed(self) -> Renewed | None:
        """The same for a beat; None: it is what the store knows since it registered."""
        says = self.says
        return None if says == self.registered else says

    @property
    def link(self) -> WorkerLink | None:
        """The connection for messages to it: of several, the newest."""
        return self._links[-1] if self._links else None

    def attach(self, link: WorkerLink) -> None:
        """Send messages to it over this connection from now on."""
        self.detach(link)
        self._links.append(link)
        self.parted = False

    def detach(self, link: WorkerLink) -> bool:
        """Forget this connection; return whether it was one of its own, and the last."""
        if link not in self._links:
            return False
        self._links.remove(link)
        return not self._links

    def hear(self, now: float) -> None:
        """Note a sign of life."""
        self.heard_at, self.heard, self.parted = now, True, False

    @property
    def full(self) -> bool:
        """Whether it has as many jobs as it may have; none more, if it is to leave."""
        count = len(self.held) + self.given
        if count >= self.concurrency and self.asked:  # the store may have been quicker than the reply
            unstarted = (one.job for one in self.held.values() if one.job.status is not Status.RUNNING)
            count -= sum(job.claim in self.asked for job in unstarted)
        return self.leaving or count >= self.concurrency

    def measure(self, now: float) -> None:
        """Note how many of its slots are busy, whenever that changes."""
        self._meter.note(len(self.held), self.concurrency, now)

    def used(self, now: float) -> Utilisation:
        """Return how much of it is used, as far as it is known here; only the worker itself knows its memory."""
        return self._meter.measured(now, failed=self.failed, claimed_at=self.claimed_at, polled_at=self.polled_at)

    def occupied(self, now: float) -> tuple[float, float]:
        """Return the seconds of its slots since this was last called, and of those in which they were busy."""
        self.measure(now)
        return self._meter.taken(now)

    def gave_up(self, job: UUID, epoch: int) -> None:
        """Note that it holds a job no longer, by the epoch at which it held it."""
        while len(self._over) >= _MAX_REMEMBERED_REPLIES + 2 * self.concurrency:
            del self._over[next(iter(self._over))]
        self._over[job] = epoch

    def has_given_up(self, job: UUID, epoch: int) -> bool:
        """Return whether it is known here that it no longer holds the job, although an earlier read says so."""
        return self._over.get(job, -1) >= epoch

    def epoch_of(self, job: UUID) -> int | None:
        """Return the epoch at which it holds, or last held, a job; None: that is not known here."""
        held = self.held.get(job)
        return self._over.get(job) if held is None else held.epoch

    def answered(self, held: HeldJob, message: str, answer: Any) -> None:
        """Keep a reply for a message that may be repeated."""
        while len(self._answers) >= _MAX_REMEMBERED_REPLIES:
            del self._answers[next(iter(self._answers))]
        self._answers[held.job.id, held.epoch, message] = answer

    def answer_to(self, job: UUID, epoch: int, message: str) -> Any:
        """Return the earlier reply to this message; None: it is not known here."""
        return self._answers.get((job, epoch, message))
