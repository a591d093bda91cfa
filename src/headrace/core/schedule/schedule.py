"""Schedules: what is stored of one, what a round of its fires makes of it, and how it stands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.bounds import checked_name
from headrace.core.job import Spec
from headrace.core.schedule.fires import (
    SKIP_GRACE,
    due_fires,
    fire_id,
    fires,
    jittered,
    latest_fires,
    next_fire,
    preview,
)
from headrace.core.schedule.when import CATCH_UP_CAP, CatchUp, Continuous, Cron, Every, Overlap, Rule, same_rule
from headrace.errors import ConfigError, shown

__all__ = [
    "CATCH_UP_CAP",
    "SKIP_GRACE",
    "CatchUp",
    "Continuous",
    "Cron",
    "Every",
    "Overlap",
    "Rule",
    "ScheduleDoc",
    "State",
    "due_fires",
    "fire_id",
    "fired",
    "fires",
    "jittered",
    "latest_fires",
    "new_schedule",
    "next_fire",
    "preview",
    "same_rule",
]

State = Literal["active", "paused", "retired", "unserved", "ended"]
"""How a schedule stands: it fires; a person lets it rest; the code of its task asks for it no more; no live worker has
the code that asked for it; its last fire has been."""


class ScheduleDoc(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as stored, in the setting ``schedule:NAME``."""

    name: str
    rule: Rule
    spec: Spec
    """What each fire submits, but for its own times."""
    payload_text: str
    created_at: datetime
    anchor: datetime
    """Where ``Every`` counts from: the creation, or the last change of the rule."""
    cursor: datetime
    """Every fire up to here has been dealt with; moves only forward."""
    generation: int = 1
    """Grows when the rule changes: fires of another generation are other fires."""
    last_fire: datetime | None = None
    """The newest fire that made a job."""
    last_job: UUID | None = None
    """The job it made."""
    skipped: int = 0
    """How many fires made no job because one of an earlier fire was live."""
    waiting: datetime | None = None
    """The one fire that makes its job when the live one has ended."""
    paused: bool = False
    retired: bool = False
    """Its task no longer asks for it; comes back to life when the code does."""
    source: Literal["code", "dynamic"] = "dynamic"

    @property
    def task(self) -> str:
        """The task each fire submits."""
        return self.spec.task

    @property
    def active(self) -> bool:
        """Whether it fires at all."""
        return not (self.paused or self.retired)

    @property
    def next_fire(self) -> datetime | None:
        """The first fire not yet dealt with (in the past when the planner is behind); None while it rests."""
        return next_fire(self.rule, self.cursor, self.anchor) if self.active else None

    @property
    def key(self) -> str | None:
        """The dedup key of the jobs it makes: with an overlap policy, one that lets only one of them be live."""
        return self.spec.dedup if self.overlap == "allow" else f"schedule:{self.name}"

    @property
    def overlap(self) -> Overlap:
        """What a fire does while a job of an earlier one is live."""
        return "allow" if isinstance(self.rule, Continuous) else self.rule.overlap

    def state(self, *, served: bool = True) -> State:
        """How it stands; ``served``: whether a live worker has its task."""
        if self.retired:
            return "retired"
        if self.paused:
            return "paused"
        if self.waiting is None and not isinstance(self.rule, Continuous) and self.next_fire is None:
            return "ended"
        return "unserved" if self.source == "code" and not served else "active"

    def to_text(self) -> str:
        """As stored."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> ScheduleDoc:
        """From the store."""
        return msgspec.json.decode(text, type=cls)


def fired(doc: ScheduleDoc, cursor: datetime, made: Sequence[datetime], held: Sequence[datetime]) -> ScheduleDoc:
    """The schedule after a round: ``made`` are the fires that have their job, ``held`` those a live job kept from it.

    Of those that were held up, ``overlap="wait"`` keeps the newest; the rest are skipped for good.
    """
    waiting = max(held) if held and doc.overlap == "wait" else None
    newest = max(made, default=None)
    last = doc.last_fire if newest is None else max(newest, doc.last_fire or newest)
    return replace(
        doc,
        cursor=max(doc.cursor, cursor),
        last_fire=last,
        last_job=doc.last_job if newest is None else fire_id(doc.name, doc.generation, newest),
        skipped=doc.skipped + len(held) - (waiting is not None),
        waiting=waiting,
    )


def new_schedule(
    name: str,
    rule: Rule,
    spec: Spec,
    payload_text: str,
    now: datetime,
    source: Literal["code", "dynamic"] = "dynamic",
) -> ScheduleDoc:
    """A schedule that begins now: its first fire is the next one."""
    name = checked_name(name, "a schedule's name")
    if not isinstance(rule, Cron | Every | Continuous):
        raise ConfigError(f"schedule {name!r}: the rule must be a Cron, an Every or a Continuous, not {shown(rule)}")
    alone = None
    if isinstance(rule, Continuous):
        alone, spec = "a continuous task", replace(spec, retry=rule.retry)
    elif rule.overlap != "allow":
        alone = f"overlap={rule.overlap!r}"
    if alone is not None and spec.dedup is not None:
        raise ConfigError(f"schedule {name!r}: {alone} needs the dedup key of its jobs for itself; leave dedup out")
    return ScheduleDoc(
        name=name,
        rule=rule,
        spec=spec,
        payload_text=payload_text,
        created_at=now,
        anchor=now,
        cursor=now,
        source=source,
    )
