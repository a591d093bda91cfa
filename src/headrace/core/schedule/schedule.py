"""A schedule: how it is stored, made, changed, paused and removed, and the jobs that it submits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.defaults import MAX_CATCH_UP_FIRES, SKIP_GRACE_SECONDS
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.submission import submit
from headrace.core.schedule.fires import due_fires, fire_id, fires, jittered, latest_fires, next_fire, preview
from headrace.core.schedule.rules import CatchUp, Continuous, Cron, Every, Overlap, Rule, same_rule
from headrace.core.validation import checked_name
from headrace.errors import ConfigError, shown

__all__ = [
    "MAX_CATCH_UP_FIRES",
    "SKIP_GRACE_SECONDS",
    "CatchUp",
    "Continuous",
    "Cron",
    "Every",
    "Overlap",
    "Rule",
    "ScheduleDoc",
    "State",
    "check_removable",
    "due_fires",
    "fire",
    "fire_id",
    "fired",
    "fires",
    "jittered",
    "latest_fires",
    "new_schedule",
    "next_fire",
    "paused",
    "preview",
    "replaced",
    "resumed",
    "retired",
    "revised",
    "same_rule",
    "trigger",
]


State = Literal["active", "paused", "retired", "unserved", "ended"]
"""The state of a schedule: it fires; a person paused it; the code of its task no longer declares it; no live worker has
the code that declared it; its last fire is over."""


class ScheduleDoc(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as stored, in the setting ``schedule:NAME``."""

    name: str
    rule: Rule
    spec: Spec
    """What each fire submits, except its own times."""
    payload_text: str
    created_at: datetime
    anchor: datetime
    """Where ``Every`` counts from: the creation, or the last change of the rule."""
    cursor: datetime
    """Every fire up to here is done; moves only forward."""
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
    """Its task no longer declares it; active again when the code does."""
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
        """The first fire that is not done (in the past when the planner is behind); None while it is inactive."""
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
        """Return its state; ``served``: whether a live worker has its task."""
        if self.retired:
            return "retired"
        if self.paused:
            return "paused"
        if self.waiting is None and not isinstance(self.rule, Continuous) and self.next_fire is None:
            return "ended"
        return "unserved" if self.source == "code" and not served else "active"

    def to_text(self) -> str:
        """Return it as stored."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> ScheduleDoc:
        """Read it from the store."""
        return msgspec.json.decode(text, type=cls)


def fired(doc: ScheduleDoc, cursor: datetime, made: Sequence[datetime], held: Sequence[datetime]) -> ScheduleDoc:
    """Return the schedule after a round: ``made`` are fires that have their job, ``held`` those that a live job
    blocked.

    Of the blocked ones, ``overlap="wait"`` keeps the newest; the rest are skipped for good.
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
    """Return a schedule that begins now: its first fire is the next one."""
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


def revised(old: ScheduleDoc | None, new: ScheduleDoc) -> ScheduleDoc:
    """Return what is stored when ``new`` is declared and ``old`` exists.

    The same rule keeps its cursor and goes on; another rule begins at the new document's ``cursor``. A pause goes on: a
    program that declares its schedules at every start must not undo a person's action.
    """
    if old is None:
        return new
    if old.retired or not same_rule(old.rule, new.rule):
        # Missed fires of the old rule are not made up for by the new one.
        return replace(
            new,
            created_at=old.created_at,
            cursor=max(old.cursor, new.cursor),
            generation=old.generation + 1,
            paused=old.paused,
            last_fire=old.last_fire,
            last_job=old.last_job,
            skipped=_without_waiting(old).skipped,
        )
    spec = replace(new.spec, created_at=old.spec.created_at)
    return replace(old, rule=new.rule, spec=spec, payload_text=new.payload_text, source=new.source)


def replaced(old: ScheduleDoc | None, new: ScheduleDoc) -> ScheduleDoc:
    """Return ``revised``, requested by a person or a program.

    :raises ConfigError: the name belongs to a schedule that the code of a task defines.
    """
    if old is not None and _lives_in_code(old) and new.source != "code":
        raise ConfigError(
            f"schedule {new.name!r} is defined in code, with the task {old.task!r}: change it there, or choose "
            f"another name"
        )
    return revised(old, new)


def paused(doc: ScheduleDoc) -> ScheduleDoc:
    """Return the schedule once it is paused: nothing fires until it is resumed."""
    return replace(doc, paused=True)


def resumed(doc: ScheduleDoc, now: datetime) -> ScheduleDoc:
    """Return the schedule once its pause is over; what would have fired meanwhile is not made good."""
    return replace(_without_waiting(doc), paused=False, cursor=max(doc.cursor, now)) if doc.paused else doc


def retired(doc: ScheduleDoc, now: datetime) -> ScheduleDoc:
    """Return the schedule once no code declares it: it keeps its cursor and generation, and does not fire."""
    return replace(_without_waiting(doc), retired=True, cursor=max(doc.cursor, now))


def check_removable(doc: ScheduleDoc) -> None:
    """Refuse to remove a schedule that code defines: the next start of a worker would bring it back.

    :raises ConfigError: with the remedy
    """
    if _lives_in_code(doc):
        raise ConfigError(f"schedule {doc.name!r} is defined in code: pause it, or remove it there")


def _lives_in_code(doc: ScheduleDoc) -> bool:
    return doc.source == "code" and not doc.retired


def _without_waiting(doc: ScheduleDoc) -> ScheduleDoc:
    """Return the schedule without the fire that waited for a live job to end: it makes no job any more."""
    return doc if doc.waiting is None else replace(doc, waiting=None, skipped=doc.skipped + 1)


def fire(doc: ScheduleDoc, at: datetime, now: datetime) -> Job:
    """Return the one job that this fire makes; always of the same id."""
    if isinstance(doc.rule, Continuous):
        raise ConfigError(f"schedule {doc.name!r} is continuous and has no fires")
    spec = replace(doc.spec, created_at=now, schedule=doc.name, fire_at=at, dedup=doc.key)
    due = jittered(doc.name, doc.generation, at, doc.rule.spread)
    return submit(fire_id(doc.name, doc.generation, at), spec, doc.payload_text, now, available_at=due)


def trigger(doc: ScheduleDoc, id: UUID, now: datetime) -> Job:
    """Return the job of a manual trigger, apart from the fires.

    :raises ConfigError: the schedule is continuous, and another run would be one too many.
    """
    if isinstance(doc.rule, Continuous):
        raise ConfigError(
            f"schedule {doc.name!r} is continuous: it runs by itself; submit {doc.task!r} for a run beside it"
        )
    return submit(id, replace(doc.spec, created_at=now, schedule=doc.name, fire_at=None), doc.payload_text, now)
