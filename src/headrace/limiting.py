"""What an App says about queues and limits: in code, where it is a default, and while running, where it wins."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.bus import Hint, Topic
from headrace.core.rate import Rate
from headrace.core.rule import Limits, TaskRule, layered, limits_of
from headrace.engine import Engine
from headrace.errors import ConfigError, Unavailable
from headrace.handler import Handler
from headrace.lifetime import Lifetime

__all__ = ["LimitInfo", "Limited", "announce_limits", "check_limits", "edit_rule"]

_log = logging.getLogger("headrace.app")

_TRIES = 20

QUEUE, LIMIT, RATE = "queue:", "limit:", "rate:"
_NAMES = {QUEUE: "a queue's name", LIMIT: "a task's name", RATE: "a rate's name"}


class LimitInfo(msgspec.Struct, frozen=True):
    """What limits a task, and where that was said."""

    task: str
    max_concurrency: int | None
    max_per_key: int | None
    rates: tuple[str, ...]
    live: bool
    """Whether anything of it was set while running, and so goes before what the code says."""


class Limited(Lifetime):
    """The half of an App that knows queues and limits."""

    _declared: dict[str, dict[str, Any]]
    """What the code says, by the key of its setting."""

    # -- in code

    def queue(
        self,
        name: str,
        *,
        priority: int | None = None,
        max_concurrency: int | None = None,
        rates: Sequence[str] | None = None,
    ) -> None:
        """Say how a queue is served; written to the store when a worker starts. What is set while running goes first.

        :raises ConfigError: naming the argument
        """
        said = _given(priority=priority, max_concurrency=max_concurrency, rates=rates)
        self._declared[QUEUE + _named(name, "a queue's name")] = _checked_queue(said)

    def rate(self, name: str, rate: Rate) -> None:
        """Name a rate, for tasks and queues to keep to; written to the store when a worker starts."""
        if not isinstance(rate, Rate):
            raise ConfigError(f"rate {name!r} takes a Rate, as in Rate(100, per=60), not {rate!r}")
        self._declared[RATE + _named(name, "a rate's name")] = msgspec.to_builtins(rate)

    # -- while running

    async def pause_queue(self, name: str, *, by: str | None = None) -> None:
        """Let nothing more of a queue be started. ``by``: who wants that, for ``explain`` to tell."""
        at = msgspec.to_builtins(self.host.clock.now())
        await self._edit(QUEUE, name, {"paused": True, "paused_by": by, "paused_at": at})

    async def resume_queue(self, name: str) -> None:
        """Let a queue go on."""
        await self._edit(QUEUE, name, {"paused": False, "paused_by": None, "paused_at": None})

    async def set_queue(
        self,
        name: str,
        *,
        priority: int | None = None,
        max_concurrency: int | None = None,
        rates: Sequence[str] | None = None,
    ) -> None:
        """Serve a queue before those of lower priority (default 0), hold no more of its jobs at once, keep to rates.

        What is left out stays as it is.
        """
        said = _given(priority=priority, max_concurrency=max_concurrency, rates=rates)
        await self._edit(QUEUE, name, _checked_queue(said))

    async def reset_queue(self, name: str) -> None:
        """Let the code speak again: forget what was set while running, a pause as well."""
        await self._edit(QUEUE, name, None)

    async def set_limit(
        self,
        task: str,
        *,
        max_concurrency: int | None = None,
        max_per_key: int | None = None,
        rates: Sequence[str] | None = None,
    ) -> None:
        """Limit a task while running; what is left out stays as it is."""
        said = _given(max_concurrency=max_concurrency, max_per_key=max_per_key, rates=rates)
        await self._edit(LIMIT, task, msgspec.to_builtins(check_limits(said)) if said else {}, only=said)

    async def reset_limit(self, task: str) -> None:
        """Let the code speak again about a task."""
        await self._edit(LIMIT, task, None)

    async def limits(self) -> list[LimitInfo]:
        """Every task that is limited, by name."""
        found = []
        for setting in await self.engine.settings(LIMIT):
            rule = msgspec.convert(layered(setting.value), TaskRule)
            live = set(msgspec.json.decode(setting.value, type=dict[str, Any])) - {"code"}
            task = setting.key.removeprefix(LIMIT)
            if rule.limited or live:
                found.append(LimitInfo(task, rule.max_concurrency, rule.max_per_key, rule.rates, bool(live)))
        return found

    async def set_rate(self, name: str, rate: Rate) -> None:
        """Change a rate while running."""
        if not isinstance(rate, Rate):
            raise ConfigError(f"rate {name!r} takes a Rate, as in Rate(100, per=60), not {rate!r}")
        await self._edit(RATE, name, msgspec.to_builtins(rate))

    async def reset_rate(self, name: str) -> None:
        """Let the code speak again about a rate."""
        await self._edit(RATE, name, None)

    async def rates(self) -> dict[str, Rate]:
        """Every rate, by name."""
        settings = await self.engine.settings(RATE)
        return {one.key.removeprefix(RATE): msgspec.convert(layered(one.value), Rate) for one in settings}

    async def _edit(
        self, kind: str, name: str, said: Mapping[str, Any] | None, only: Mapping[str, Any] | None = None
    ) -> None:
        _named(name, _NAMES[kind])
        chosen = said if said is None or only is None else {one: said[one] for one in only}
        await edit_rule(self.engine, kind + name, live=chosen)


def _named(name: Any, what: str) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ConfigError(f"{what} is text that is not empty, not {name!r}")
    return name


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, not {value!r}")
    return int(value)


def _rates(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"rates must be a sequence of names, not {value!r}")
    return tuple(dict.fromkeys(_named(name, "each of rates") for name in value))


def check_limits(given: Mapping[str, Any]) -> TaskRule:
    """The limits of a task, checked.

    :raises ConfigError: naming the option
    """
    counts = {name: _count(given[name], name) for name in ("max_concurrency", "max_per_key") if name in given}
    return TaskRule(**counts, rates=_rates(given.get("rates", ())))


def _checked_queue(said: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    if "priority" in said:
        if isinstance(said["priority"], bool) or not isinstance(said["priority"], int):
            raise ConfigError(f"a queue's priority must be a whole number, not {said['priority']!r}")
        checked["priority"] = said["priority"]
    if "max_concurrency" in said:
        checked["max_concurrency"] = _count(said["max_concurrency"], "max_concurrency")
    if "rates" in said:
        checked["rates"] = _rates(said["rates"])
    return checked


async def edit_rule(
    engine: Engine, key: str, *, live: Mapping[str, Any] | None = None, code: Mapping[str, Any] | None = None
) -> bool:
    """Change what a setting says while running (``live``; None: nothing any more) or, if given, only what the code
    says; whether anything changed."""
    for _ in range(_TRIES):
        setting = next((one for one in await engine.settings(key) if one.key == key), None)
        old: dict[str, Any] = {} if setting is None else msgspec.json.decode(setting.value)
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
        rev = 0 if setting is None else setting.rev
        if await engine.put_setting(key, text if new else None, rev) is not None:
            engine.bus.send(Hint(Topic.SETTINGS, (key,)))
            # Workers wait for work, not for settings: a queue that opens, or a limit that is raised, is work.
            queue = key.removeprefix(QUEUE)
            engine.bus.send(Hint(Topic.READY, (queue,) if queue != key else ()))
            return True
    raise Unavailable(f"the setting {key!r} was changed by others {_TRIES} times while it was being written")


async def announce_limits(
    engine: Engine, declared: Mapping[str, Mapping[str, Any]], handlers: Mapping[str, Handler]
) -> None:
    """Write down what the code says; of its own tasks also that it says nothing any more."""
    known = {setting.key for setting in await engine.settings(LIMIT)}
    said = dict(declared)
    for handler in handlers.values():
        rule = handler.policy.limits
        for key in (LIMIT + name for name in (handler.name, *handler.aliases)):
            if rule.limited:
                said[key] = {name: value for name, value in msgspec.to_builtins(rule).items() if value}
            elif key in known:
                said[key] = {}
    for key, code in said.items():
        await edit_rule(engine, key, code=code)
    named = {rate for rule in said.values() for rate in rule.get("rates", ())}
    limits = limits_of((one.key, one.value) for one in await engine.settings()) if named else Limits()
    for rate, users in limits.undefined().items():
        if rate in named:
            who = " and ".join(users)
            _log.warning("nobody has defined the rate %r that %s must keep to: it limits nothing", rate, who)
