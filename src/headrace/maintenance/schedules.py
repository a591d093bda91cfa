"""Schedules as kept in the store: made, changed, rested and removed, by people and by the code of workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from functools import partial

import msgspec
from msgspec.structs import replace

from headrace.core import audit
from headrace.core.attempt import Event
from headrace.core.job import Job
from headrace.core.schedule.rules import Rule
from headrace.core.schedule.schedule import (
    ScheduleDoc,
    check_removable,
    new_schedule,
    paused,
    replaced,
    resumed,
    retired,
    revised,
    trigger,
)
from headrace.engine import Engine, Inserted, Setting
from headrace.engine.bus import Hint, Topic
from headrace.errors import ConfigError, Unavailable, UnknownSchedule
from headrace.runtime.host import Host
from headrace.runtime.secrets import setting_of
from headrace.runtime.writes.writer import Writer

__all__ = [
    "PREFIX",
    "create_schedule",
    "delete_schedule",
    "edit_schedule",
    "find_schedule",
    "list_schedules",
    "pause_schedule",
    "read",
    "resume_schedule",
    "sync_schedules",
    "trigger_schedule",
]

PREFIX = "schedule:"

_MAX_TRIES = 20
_log = logging.getLogger("headrace.schedules")


def read(setting: Setting) -> ScheduleDoc:
    """The schedule a setting holds; refuses one that this version cannot read."""
    try:
        return ScheduleDoc.from_text(setting.value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(f"the setting {setting.key!r} is not a schedule this version can read: {error}") from error


async def list_schedules(engine: Engine) -> list[ScheduleDoc]:
    """Every schedule, by name; one that this version cannot read is logged and left out."""
    return await _readable(engine, _log.warning)


async def find_schedule(engine: Engine, name: str) -> ScheduleDoc:
    """The schedule of this name; :raises UnknownSchedule:"""
    setting = await setting_of(engine, PREFIX + name)
    if setting is None:
        raise UnknownSchedule(name)
    return read(setting)


async def create_schedule(engine: Engine, doc: ScheduleDoc, act: Event | None = None) -> ScheduleDoc:
    """Make a schedule, or change the one of its name, as ``core.schedule.schedule.replaced`` says; as stored."""
    return await _edit(engine, doc.name, lambda old: replaced(old, doc), act)


async def edit_schedule(
    engine: Engine, name: str, rule: Rule, payload: str | None, now: datetime, act: Event | None = None
) -> ScheduleDoc:
    """Change the rule of a schedule, and its payload unless that is None; as stored. Its task is read with each try:
    what others made of it meanwhile stays, and one that is gone is not brought back."""

    def edited(old: ScheduleDoc | None) -> ScheduleDoc:
        known = _known(old, name)
        text = known.payload_text if payload is None else payload
        return replaced(known, new_schedule(name, rule, known.spec, text, now))

    return await _edit(engine, name, edited, act)


async def pause_schedule(engine: Engine, name: str, act: Event | None = None) -> ScheduleDoc:
    """Pause a schedule: nothing fires until it is resumed."""
    return await _edit(engine, name, lambda old: paused(_known(old, name)), act)


async def resume_schedule(engine: Engine, name: str, now: datetime, act: Event | None = None) -> ScheduleDoc:
    """Resume a schedule; what would have fired meanwhile is not made up for."""

    return await _edit(engine, name, lambda old: resumed(_known(old, name), now), act)


async def delete_schedule(engine: Engine, name: str, act: Event | None = None) -> None:
    """Remove it; its jobs stay;
    :raises ConfigError: code defines it, and would bring it back at the next start of a worker."""
    for _ in range(_MAX_TRIES):
        setting = await setting_of(engine, PREFIX + name)
        if setting is None:
            raise UnknownSchedule(name)
        if (doc := _readable_doc(setting)) is not None:
            check_removable(doc)
        if await engine.documents.put_setting(setting.key, None, setting.rev, act) is not None:
            _send_hint(engine, name)
            return
    raise _contended(name)


def _readable_doc(setting: Setting) -> ScheduleDoc | None:
    """The schedule, or None: one that cannot be read must not be kept from removal."""
    try:
        return read(setting)
    except ConfigError:
        return None


async def trigger_schedule(engine: Engine, writer: Writer, host: Host, name: str, by: str | None = None) -> Job:
    """Submit the job of a schedule now, also while it is paused; the live job that holds its dedup key, if any;
    :raises ConfigError: it is continuous, and another run would be one too many."""
    doc, now = await find_schedule(engine, name), host.clock.now()
    job = trigger(doc, host.dice.new_id(now), now)
    act = audit.act("trigger", now, by, {"job": str(job.id)})
    answer = await writer.inserts.insert(job)
    if isinstance(answer, Inserted):
        await _note(engine, name, act)
    return answer.job


async def _note(engine: Engine, name: str, act: Event) -> None:
    """Put an action on record that leaves the schedule as it is; not if it is gone, or others are always faster."""
    for _ in range(_MAX_TRIES):
        setting = await setting_of(engine, PREFIX + name)
        if setting is None or await engine.documents.put_setting(setting.key, setting.value, setting.rev, act):
            return


async def sync_schedules(
    engine: Engine, docs: Iterable[ScheduleDoc], now: datetime, *, tasks: Collection[str] | None = None
) -> list[str]:
    """Bring the schedules that code defines up to date with the code; the names of those that changed.

    Called by a worker at its start, with everything its tasks declare. A schedule that came from code, of one of
    ``tasks`` (default: the tasks of ``docs``), that is declared no more, retires: it stays, so that its cursor and
    generation do, but fires no longer.
    """
    wanted = {doc.name: doc if doc.source == "code" else replace(doc, source="code") for doc in docs}
    known = {doc.task for doc in wanted.values()} if tasks is None else set(tasks)
    changed = []
    for name, doc in wanted.items():
        if await _wrote(engine, name, partial(revised, new=doc)):
            changed.append(name)
        else:
            _send_hint(engine, name)  # unchanged, but now there is a worker that has it
    for old in await _readable(engine):
        gone = old.source == "code" and not old.retired and old.task in known and old.name not in wanted
        if gone and await _wrote(engine, old.name, lambda old: None if old is None else retired(old, now)):
            changed.append(old.name)
    return changed


def _known(doc: ScheduleDoc | None, name: str) -> ScheduleDoc:
    if doc is None:
        raise UnknownSchedule(name)
    return doc


async def _readable(engine: Engine, log: Callable[[str, ConfigError], object] = _log.debug) -> list[ScheduleDoc]:
    """The schedules this version can read; those of a newer one are not ours to judge."""
    docs = []
    for setting in await engine.documents.settings(PREFIX):
        try:
            docs.append(read(setting))
        except ConfigError as error:
            log("%s", error)
    return docs


async def _edit(
    engine: Engine, name: str, edit: Callable[[ScheduleDoc | None], ScheduleDoc], act: Event | None = None
) -> ScheduleDoc:
    """Read, decide, write, and again whenever another was faster; the schedule as it is then."""
    for _ in range(_MAX_TRIES):
        setting = await setting_of(engine, PREFIX + name)
        old = None if setting is None else read(setting)
        new = edit(old)
        if new == old:
            return new
        rev = 0 if setting is None else setting.rev
        if await engine.documents.put_setting(PREFIX + name, new.to_text(), rev, act) is not None:
            _send_hint(engine, name)
            return new
    raise _contended(name)


async def _wrote(engine: Engine, name: str, edit: Callable[[ScheduleDoc | None], ScheduleDoc | None]) -> bool:
    """Edit; whether that changed anything."""
    before: ScheduleDoc | None = None

    def noted(old: ScheduleDoc | None) -> ScheduleDoc:
        nonlocal before
        before = old
        new = edit(old)
        if new is None:
            raise UnknownSchedule(name)
        return new

    try:
        return await _edit(engine, name, noted) != before
    except UnknownSchedule:
        return False  # deleted meanwhile


def _send_hint(engine: Engine, name: str) -> None:
    engine.bus.send(Hint(Topic.SETTINGS, (PREFIX + name,)))


def _contended(name: str) -> Unavailable:
    return Unavailable(f"schedule {name!r} was changed by others {_MAX_TRIES} times while it was being written")
