"""Scenes: the two jobs that a store has at the beginning, what ties them together, and what limits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from headrace.core.batch import Batch
from headrace.core.defaults import Rules
from headrace.core.job import Job, OnDuplicate, Spec
from headrace.core.lifecycle.retry import Retry
from headrace.core.lifecycle.submission import submit

__all__ = ["BATCH", "JOBS", "RULES", "SCENES", "START", "WAIT_SECONDS", "Scene"]

START = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
RULES = Rules(undeliverable_after=3)
WAIT_SECONDS = 3600.0
"""Seconds that pass when time passes: more than any deadline."""
JOBS = (UUID(int=1), UUID(int=2))
BATCH = UUID(int=9)
_TIMEOUT_SECONDS = 60.0
_EXPIRY_SECONDS = 600.0


@dataclass(frozen=True)
class Scene:
    """What is in a store at the beginning."""

    name: str
    retries: tuple[int, int] = (1, 1)
    """How often each job is retried."""
    claims: int = 1
    """How many jobs a worker takes at once; the second one waits in its buffer."""
    offered: bool = False
    """Jobs are offered to workers, and not theirs at once."""
    expires: bool = False
    """The jobs must start before time passes."""
    settings: Mapping[str, str] = field(default_factory=dict)
    after: bool = False
    """The second job waits for the first."""
    child: bool = False
    """The handler of the first job submits the second."""
    batch: bool = False
    """Both jobs are in a batch."""
    duplicate: OnDuplicate | None = None
    """The second job is submitted at some moment, with the dedup key of the first; and what its submit requests."""
    rate: int | None = None
    """How many jobs may begin before time passes."""
    faults: int = 2
    """How many steps of the complete exploration are faults, or actions of people."""
    quick: int = 1
    """The same of the quick one."""

    @property
    def symmetric(self) -> bool:
        """Whether the two jobs can be exchanged."""
        return not (self.after or self.child or self.duplicate) and self.retries[0] == self.retries[1]

    @property
    def first(self) -> tuple[Job, ...]:
        """Return the jobs that are there at the beginning."""
        return tuple(self.job(at, START) for at in ((0,) if self.child or self.duplicate else (0, 1)))

    def job(self, at: int, now: datetime) -> Job:
        """Return one of the jobs as it is submitted."""
        waits = (JOBS[0],) if self.after and at == 1 else ()
        spec = Spec(
            task="work",
            created_at=now,
            retry=Retry(self.retries[at], backoff=[0], jitter=False),
            timeout=_TIMEOUT_SECONDS,
            after=waits,
            parent=JOBS[0] if self.child and at == 1 else None,
            root=JOBS[0] if self.child and at == 1 else None,
            batch=BATCH if self.batch else None,
            dedup=None if self.duplicate is None else "key",
            on_duplicate="return" if self.duplicate is None else self.duplicate,
        )
        last = now + timedelta(seconds=_EXPIRY_SECONDS) if self.expires else None
        return submit(JOBS[at], spec, "{}", now, waits=len(waits), not_after=last)

    def made_batch(self) -> Batch | None:
        """Return the batch of its jobs, if they are in one."""
        return Batch(id=BATCH, created_at=START, touched_at=START, sealed=True) if self.batch else None


SCENES = {
    scene.name: scene
    for scene in (
        Scene("pair"),
        Scene("single attempts", retries=(0, 0)),
        Scene("buffer", claims=2),
        Scene("offers", offered=True),
        Scene("expiry", expires=True),
        Scene("graph", after=True),
        Scene("family", child=True),
        Scene("batch", batch=True),
        Scene("limit", settings={"limit:work": '{"max_concurrency": 1}'}),
        Scene(
            "rate",
            settings={
                "rate:one": '{"limit": 1, "per": 600, "kind": "sliding", "keyed": false}',
                "limit:work": '{"rates": ["one"]}',
            },
            rate=1,
        ),
        Scene("dedup key", duplicate="return"),
        Scene("replaced duplicate", duplicate="replace"),
    )
}
"""All scenes by name."""
