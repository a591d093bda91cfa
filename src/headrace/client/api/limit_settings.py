"""What the store keeps of queues, limits and rates: written, changed, forgotten; and which names mean anything."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from headrace.client.api.tasks import known_tasks
from headrace.core.attempt import Event
from headrace.core.limits.settings import QueueRule, TaskRule, limits_of, told_unreadable
from headrace.engine import Engine, Setting
from headrace.engine.bus import Hint, Topic
from headrace.errors import ConfigError, Unavailable, UnknownSetting
from headrace.maintenance.schedules import list_schedules
from headrace.worker.handler import Handler

__all__ = [
    "LIMIT",
    "QUEUE",
    "RATE",
    "Named",
    "announce_limits",
    "edit_rule",
    "forget_rule",
    "known_names",
    "said_live",
    "undefined_rates",
]

_log = logging.getLogger("headrace.app")

_MAX_TRIES = 20

QUEUE, LIMIT, RATE = "queue:", "limit:", "rate:"

Named = Literal["queue", "task", "rate"]
"""What a setting is about."""

_PREFIXES: dict[Named, str] = {"queue": QUEUE, "task": LIMIT, "rate": RATE}


async def edit_rule(
    engine: Engine,
    key: str,
    *,
    live: Mapping[str, Any] | None = None,
    code: Mapping[str, Any] | None = None,
    act: Event | None = None,
) -> bool:
    """Change what a setting says while running (``live``; None: nothing any more) or, if given, only what the code
    says; whether anything changed. ``act``: who does it, if a person or a program does.

    :raises ConfigError: this version could not read the setting then
    """
    for _ in range(_MAX_TRIES):
        setting = await _setting(engine, key)
        old = {} if setting is None else _said(setting.value)
        if old is None:
            raise ConfigError(": ".join(told_unreadable(key, "it is no JSON object")))
        base = {"code": old["code"]} if old.get("code") else {}
        if code is not None:
            new = {
                **{name: value for name, value in old.items() if name != "code"},
                **({"code": dict(code)} if code else {}),
            }
        else:
            new = base if live is None else {**old, **live}
        text = msgspec.json.encode(new).decode()
        if msgspec.json.decode(text) == old:
            return False
        # Others may read what we cannot: to write it would tell them that we did.
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


def said_live(document: str) -> bool:
    """Whether anything in a setting was said while running."""
    return bool((_said(document) or {}).keys() - {"code"})


async def forget_rule(engine: Engine, of: Named, name: str, act: Event | None = None) -> None:
    """Drop all that is stored of a queue, of a task's limits or of a rate, whoever said it.

    :raises UnknownSetting: nothing is
    """
    key = _PREFIXES[of] + name
    for _ in range(_MAX_TRIES):
        setting = await _setting(engine, key)
        if setting is None:
            raise UnknownSetting(of, name)
        if await _put(engine, key, None, setting.rev, act):
            return
    raise _contended(key)


async def _setting(engine: Engine, key: str) -> Setting | None:
    return next((one for one in await engine.documents.settings(key) if one.key == key), None)


async def _put(engine: Engine, key: str, value: str | None, rev: int, act: Event | None) -> bool:
    if await engine.documents.put_setting(key, value, rev, act) is None:
        return False
    engine.bus.send(Hint(Topic.SETTINGS, (key,)))
    if key.startswith(QUEUE):
        # Customers may have lines of their own now, or none any more. What this does not get to, the sweeper does.
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
    """Write down what the code says; of its own tasks also that it says nothing any more."""
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
    """The rates that queues and tasks name and nobody has defined, each with a sentence that says who names it."""
    limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
    return {
        rate: f"nobody has defined the rate {rate!r} that {' and '.join(users)} must keep to"
        for rate, users in limits.undefined().items()
    }


async def known_names(
    engine: Engine,
    of: Named,
    declared: Mapping[str, Mapping[str, Any]],
    handlers: Mapping[str, Handler],
    now: datetime,
) -> frozenset[str]:
    """The queues, tasks or rates that code, a job, a schedule or a live worker has anything to do with.

    What was only set while running is not among them: that may have been a slip.
    """
    found = {key.removeprefix(_PREFIXES[of]) for key in declared if key.startswith(_PREFIXES[of])}
    for setting in await engine.documents.settings(_PREFIXES[of]):
        if _in_code(setting.value):
            found.add(setting.key.removeprefix(_PREFIXES[of]))
    if of == "rate":
        return frozenset(found | await _rates_named(engine, declared, handlers))
    docs = (await known_tasks(engine)).values()
    workers = [row.info for row in await engine.workers.list() if row.alive]
    schedules = await list_schedules(engine)
    if of == "queue":
        found |= {"default", *(doc.queue for doc in docs), *(doc.spec.queue for doc in schedules)}
        found |= {handler.policy.queue for handler in handlers.values()}
        found |= {queue for worker in workers for queue in worker.queues or ()}
        return frozenset(found | {count.queue for count in await engine.records.count(now)})
    found |= {name for doc in docs for name in (doc.name, *doc.aliases)} | {doc.task for doc in schedules}
    found |= {name for handler in handlers.values() for name in (handler.name, *handler.aliases)}
    found |= {task for worker in workers for task in worker.tasks}
    return frozenset(found | {profile.task for profile in (await engine.documents.profiles()).profiles})


def _in_code(document: str) -> bool:
    said = _said(document)
    return said is None or bool(said.get("code"))  # what only another version can read is not ours to judge


async def _rates_named(
    engine: Engine, declared: Mapping[str, Mapping[str, Any]], handlers: Mapping[str, Handler]
) -> set[str]:
    limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
    rules: list[QueueRule | TaskRule] = [*limits.queues.values(), *limits.tasks.values()]
    rules += (one.policy.limits for one in handlers.values())
    return {rate for rule in rules for rate in rule.rates} | {
        rate for said in declared.values() for rate in said.get("rates", ())
    }
