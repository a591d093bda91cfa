"""What becomes of a schedule: made, changed, paused, resumed, retired, removed; and the jobs it submits."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from headrace.core.job import Job
from headrace.core.lifecycle import submit
from headrace.core.schedule.schedule import Continuous, ScheduleDoc, fire_id, jittered, same_rule
from headrace.errors import ConfigError

__all__ = ["check_removable", "fire", "paused", "replaced", "resumed", "retired", "revised", "trigger"]


def revised(old: ScheduleDoc | None, new: ScheduleDoc) -> ScheduleDoc:
    """What is stored when ``new`` is asked for and ``old`` was there.

    The same rule keeps its place and goes on; another rule begins at the new document's ``cursor``. A pause goes on: a
    program that makes its schedules at every start must not undo what a person did.
    """
    if old is None:
        return new
    if old.retired or not same_rule(old.rule, new.rule):
        # The past of another rule is not made good by this one.
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
    """``revised``, asked for by a person or a program.

    :raises ConfigError: the name belongs to a schedule that the code of a task defines.
    """
    if old is not None and _lives_in_code(old) and new.source != "code":
        raise ConfigError(
            f"schedule {new.name!r} is defined in code, with the task {old.task!r}: change it there, or choose "
            f"another name"
        )
    return revised(old, new)


def paused(doc: ScheduleDoc) -> ScheduleDoc:
    """The schedule once it is paused: nothing fires until it is resumed."""
    return replace(doc, paused=True)


def resumed(doc: ScheduleDoc, now: datetime) -> ScheduleDoc:
    """The schedule once its pause is over; what would have fired meanwhile is not made good."""
    return replace(_without_waiting(doc), paused=False, cursor=max(doc.cursor, now)) if doc.paused else doc


def retired(doc: ScheduleDoc, now: datetime) -> ScheduleDoc:
    """The schedule once its code asks for it no more: it stays, with its cursor and generation, and fires no longer."""
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
    """The schedule without the fire that waited for a live job to end: it makes no job any more."""
    return doc if doc.waiting is None else replace(doc, waiting=None, skipped=doc.skipped + 1)


def fire(doc: ScheduleDoc, at: datetime, now: datetime) -> Job:
    """The one job that this fire makes; always of the same id."""
    if isinstance(doc.rule, Continuous):
        raise ConfigError(f"schedule {doc.name!r} is continuous and has no fires")
    spec = replace(doc.spec, created_at=now, schedule=doc.name, fire_at=at, dedup=doc.key)
    due = jittered(doc.name, doc.generation, at, doc.rule.spread)
    return submit(fire_id(doc.name, doc.generation, at), spec, doc.payload_text, now, available_at=due)


def trigger(doc: ScheduleDoc, id: UUID, now: datetime) -> Job:
    """The job that a trigger by hand makes, apart from the fires.

    :raises ConfigError: the schedule is continuous, and another run would be one too many.
    """
    if isinstance(doc.rule, Continuous):
        raise ConfigError(
            f"schedule {doc.name!r} is continuous: it runs by itself; submit {doc.task!r} for a run beside it"
        )
    return submit(id, replace(doc.spec, created_at=now, schedule=doc.name, fire_at=None), doc.payload_text, now)
