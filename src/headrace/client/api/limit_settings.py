"""What the store keeps of queues, limits and rates: how it is checked, written, changed, paused and deleted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from headrace.client.api.noun import Noun
from headrace.core import audit
from headrace.core.attempt import Event
from headrace.core.defaults import MAX_COUNT
from headrace.core.limits.rate import Rate
from headrace.core.limits.settings import TaskRule, limits_of, told_undefined, told_unreadable
from headrace.core.validation import checked_name, checked_note, whole
from headrace.engine import Engine
from headrace.engine.bus import Hint, Topic
from headrace.errors import ConfigError, Unavailable, UnknownSetting, shown
from headrace.runtime.secrets import setting_of
from headrace.worker.handler import Handler

if TYPE_CHECKING:
    from headrace.app import App

__all__ = [
    "LIMIT",
    "PREFIXES",
    "QUEUE",
    "RATE",
    "RESUMED",
    "Named",
    "RuleNoun",
    "announce_limits",
    "check_limits",
    "checked_queue",
    "checked_rate",
    "edit_rule",
    "given",
    "paused_by",
    "said_live",
    "undefined_rates",
    "unreadable_settings",
]

_log = logging.getLogger("headrace.app")

_MAX_TRIES = 20

QUEUE, LIMIT, RATE = "queue:", "limit:", "rate:"

Named = Literal["queue", "task", "rate"]
"""What a setting is about."""

PREFIXES: dict[Named, str] = {"queue": QUEUE, "task": LIMIT, "rate": RATE}


_NAMES: dict[Named, str] = {"queue": "a queue's name", "task": "a task's name", "rate": "a rate's name"}


class RuleNoun(Noun):
    """Queues, limits or rates: code declares them, and what is set while workers run overrides the code."""

    _kind: ClassVar[Named]

    async def reset(self, name: str, *, by: str | None = None) -> None:
        """Drop what was set while workers ran, a queue's pause included; the code applies again."""
        await self._edit(name, None, "reset", by)

    async def forget(self, name: str, *, by: str | None = None) -> None:
        """Delete all stored settings of this name: those from code, those set while workers ran, and a queue's pause.

        Jobs stay, and so does the pause of a task: it is no limit.
        A worker with code that still has the settings stores them again when it starts.

        :raises UnknownSetting: nothing is stored
        """
        await forget_rule(self._engine, self._kind, name, audit.act("forget", self._host.clock.now(), by))

    async def _edit(
        self,
        name: str,
        said: Mapping[str, Any] | None,
        verb: str,
        by: str | None,
        details: dict[str, Any] | None = None,
    ) -> None:
        """``details``: what the audit keeps, if it is not ``said``."""
        key = PREFIXES[self._kind] + checked_name(name, _NAMES[self._kind])
        kept = details if details is not None or said is None else msgspec.to_builtins(dict(said))
        await edit_rule(self._engine, key, live=said, act=audit.act(verb, self._host.clock.now(), by, kept))


_PAUSE = ("paused", "paused_by", "paused_at")

RESUMED: Mapping[str, None] = dict.fromkeys(_PAUSE)
"""What a setting says while running of a queue or task that is not paused: nothing."""


def paused_by(by: str | None, now: datetime) -> dict[str, Any]:
    """What a setting says of a queue or task that was paused now; :raises ConfigError: ``by`` is no name"""
    return dict(zip(_PAUSE, (True, checked_note(by, "by"), msgspec.to_builtins(now)), strict=True))


def given(**arguments: Any) -> dict[str, Any]:
    """The arguments that are not None."""
    return {name: value for name, value in arguments.items() if value is not None}


def _rates(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"rates must be a sequence of names, not {shown(value)}")
    return tuple(dict.fromkeys(checked_name(name, "each of rates") for name in value))


def check_limits(given: Mapping[str, Any]) -> TaskRule:
    """The limits of a task, checked; :raises ConfigError: naming the option"""
    most, per_key = (
        whole(given[name], name, 1) if name in given else None for name in ("max_concurrency", "max_per_key")
    )
    return TaskRule(most, per_key, rates=_rates(given.get("rates", ())))


def checked_queue(said: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a queue, checked; :raises ConfigError: naming the argument"""
    checked: dict[str, Any] = {}
    if "priority" in said:
        checked["priority"] = whole(said["priority"], "a queue's priority", -MAX_COUNT)
    if "max_concurrency" in said:
        checked["max_concurrency"] = whole(said["max_concurrency"], "max_concurrency", 1)
    if "rates" in said:
        checked["rates"] = _rates(said["rates"])
    if "by_customer" in said:
        if not isinstance(said["by_customer"], bool):
            raise ConfigError(f"by_customer must be True or False, not {said['by_customer']!r}")
        checked["by_customer"] = said["by_customer"]
    return checked


def checked_rate(name: str, rate: Rate) -> Rate:
    """The rate, if it is one; :raises ConfigError:"""
    if not isinstance(rate, Rate):
        raise ConfigError(f"rate {name!r} takes a Rate, as in Rate(100, per=60), not {shown(rate)}")
    return rate


async def edit_rule(
    engine: Engine,
    key: str,
    *,
    live: Mapping[str, Any] | None = None,
    code: Mapping[str, Any] | None = None,
    act: Event | None = None,
) -> bool:
    """Change what a setting says while running (``live``; a value of None: not that any more; None: nothing any more,
    but that a task is paused) or, if given, only what the code says; whether anything changed. ``act``: the action, for
    the audit, if a person or a program does it.

    :raises ConfigError: this version could not read the setting then
    """
    for _ in range(_MAX_TRIES):
        setting = await setting_of(engine, key)
        old = {} if setting is None else _said(setting.value)
        if old is None:
            raise ConfigError(": ".join(told_unreadable(key, "it is no JSON object")))
        base = _pause_of(key, old) | ({"code": old["code"]} if old.get("code") else {})
        if code is not None:
            rest = {name: value for name, value in old.items() if name != "code"}
            new = rest | ({"code": dict(code)} if code else {})
        else:
            new = (
                base if live is None else {name: value for name, value in {**old, **live}.items() if value is not None}
            )
        text = msgspec.json.encode(new).decode()
        if msgspec.json.decode(text) == old:
            return False
        # Others may read what this version cannot: they would take it for written by one that can.
        if why := limits_of([(key, text)]).unreadable.get(key) if new else None:
            raise ConfigError(": ".join(told_unreadable(key, why)))
        if await _put(engine, key, text if new else None, 0 if setting is None else setting.rev, act):
            return True
    raise _contended(key)


def _said(document: str) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(document, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None


def _pause_of(key: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """What a setting says of the pause of a task: no limit is part of it, so it stays when limits are dropped."""
    return {name: said[name] for name in _PAUSE if name in said} if key.startswith(LIMIT) else {}


def said_live(document: str) -> bool:
    """Whether a limit in a setting was said while running; a pause is no limit."""
    return bool((_said(document) or {}).keys() - {"code", *_PAUSE})


async def forget_rule(engine: Engine, of: Named, name: str, act: Event | None = None) -> None:
    """Drop all that is stored of a queue, of a task's limits or of a rate, set by code or by people, but the pause of a
    task; :raises UnknownSetting: nothing is"""
    key = PREFIXES[of] + name
    for _ in range(_MAX_TRIES):
        setting = await setting_of(engine, key)
        said = {} if setting is None else _said(setting.value) or {}
        left = _pause_of(key, said)
        if setting is None or (left and left == said):
            raise UnknownSetting(of, name)
        text = msgspec.json.encode(left).decode() if left else None
        if text is not None and limits_of([(key, text)]).unreadable:
            text = None  # a pause that no version here can read would close the task for ever
        if await _put(engine, key, text, setting.rev, act):
            return
    raise _contended(key)


async def _put(engine: Engine, key: str, value: str | None, rev: int, act: Event | None) -> bool:
    if await engine.documents.put_setting(key, value, rev, act) is None:
        return False
    engine.bus.send(Hint(Topic.SETTINGS, (key,)))
    if key.startswith(QUEUE):
        # Customers may have subqueues now, or none any more. What this does not get to, the sweeper does.
        while await engine.jobs.realign():
            pass
    # Workers wait for work, not for settings: a queue that opens, or a limit that is raised, is work.
    queue = key.removeprefix(QUEUE)
    engine.bus.send(Hint(Topic.READY, (queue,) if queue != key else ()))
    return True


def _contended(key: str) -> Unavailable:
    return Unavailable(f"the setting {key!r} was changed by others {_MAX_TRIES} times while it was being written")


async def announce_limits(
    engine: Engine, declared: Mapping[str, Mapping[str, Any]], handlers: Mapping[str, Handler]
) -> None:
    """Store what the code says; of its own tasks also that it says nothing any more."""
    known = {setting.key for setting in await engine.documents.settings(LIMIT)}
    said = dict(declared)
    for handler in handlers.values():
        rule = handler.policy.limits
        for key in (LIMIT + name for name in (handler.name, *handler.aliases)):
            if rule.limited:
                said[key] = {name: value for name, value in msgspec.to_builtins(rule).items() if value}
            elif key in known:
                said[key] = {}
    for key, code in said.items():
        try:
            await edit_rule(engine, key, code=code)
        except ConfigError as error:
            # A newer version said it in another way. What else this worker has can be worked on.
            _log.warning("%s", error)
    named = {rate for rule in said.values() for rate in rule.get("rates", ())}
    for rate, message in (await undefined_rates(engine)).items() if named else ():
        if rate in named:
            _log.warning("%s: it limits nothing", message)


async def undefined_rates(engine: Engine) -> dict[str, str]:
    """The rates that queues and tasks name and nothing defines, each with a sentence that says which do."""
    return told_undefined(limits_of((one.key, one.value) for one in await engine.documents.settings()))


async def unreadable_settings(app: App, prefix: str = "") -> list[str]:
    """A sentence for each setting of queues, limits and rates that only another version can read."""
    limits = limits_of((one.key, one.value) for one in await app.session.engine.documents.settings(prefix))
    return [": ".join(told_unreadable(key, why)) for key, why in limits.unreadable.items()]
