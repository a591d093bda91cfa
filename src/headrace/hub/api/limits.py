"""Operations about limits of tasks, and about rates, which tasks and queues name."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from headrace.app import App
from headrace.client.api.known_names import strange_name
from headrace.client.api.limits import LimitInfo
from headrace.core.limits.rate import Rate
from headrace.errors import MAX_DURATION_SECONDS
from headrace.hub.api.documents import Amount, Listed, Name, no_such, warnings_about
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest, operations_of

__all__ = ["OPERATIONS", "LimitSettings", "LimitView", "RateSettings", "RateView"]


class LimitView(LimitInfo, frozen=True):
    """The limits of a task, with their origin."""

    warnings: tuple[str, ...] = ()
    """After a change: possible typing errors, such as an unknown name."""


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New limits of a task; omitted ones stay as they are."""

    max_concurrency: Amount | None = None
    """Maximum of its jobs that run at once, in all workers together."""
    max_per_key: Amount | None = None
    """Maximum of those with the same concurrency key."""
    rates: tuple[Name, ...] | None = None
    """The rates that limit its jobs; an empty list: none."""


class RateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rate: at most ``limit`` jobs start in ``per`` seconds."""

    limit: Amount
    per: Annotated[float, msgspec.Meta(ge=0.001, le=MAX_DURATION_SECONDS)]
    kind: Literal["fixed", "sliding", "bucket"] = "fixed"
    """``fixed``: in each span, counted from 1970-01-01 UTC; ``sliding``: in any span; ``bucket``: a token bucket."""
    keyed: bool = False
    """Whether each concurrency key has a rate of its own."""


class RateView(RateSettings, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A rate, and the name by which tasks and queues refer to it."""

    name: str
    warnings: tuple[str, ...] = ()
    """After a change: possible typing errors."""


# -- limits of tasks


async def list_limits(ask: OperationRequest) -> OperationReply:
    """Return the limits of every limited task."""
    return OperationReply(Listed(tuple(await ask.hub.app.limits.list())))


async def get_limit(ask: OperationRequest) -> OperationReply:
    """Return the limits of one task."""
    app, task = ask.hub.app, ask.path["task"]
    view = await _limit(app, task)
    if not view.live and (strange := await strange_name(app, "task", task)):
        raise no_such("task", strange)
    return OperationReply(view)


async def set_limit(ask: OperationRequest) -> OperationReply:
    """Change the limits of a task."""
    app, task, said = ask.hub.app, ask.path["task"], msgspec.structs.asdict(ask.body)
    await app.limits.set(task, **said, by=ask.caller.name)
    view = await _limit(app, task)
    return OperationReply(msgspec.structs.replace(view, warnings=await warnings_about(app, "task", task, view.rates)))


async def reset_limit(ask: OperationRequest) -> OperationReply:
    """Drop the limits that were set while running."""
    await ask.hub.app.limits.reset(ask.path["task"], by=ask.caller.name)
    return OperationReply(await _limit(ask.hub.app, ask.path["task"]))


async def forget_limit(ask: OperationRequest) -> OperationReply:
    """Delete all stored limits of a task."""
    await ask.hub.app.limits.forget(ask.path["task"], by=ask.caller.name)
    return OperationReply(status=204)


async def _limit(app: App, task: str) -> LimitView:
    found = next((one for one in await app.limits.list() if one.task == task), LimitInfo(task, None, None, (), False))
    return LimitView(**msgspec.structs.asdict(found))


# -- rates


async def list_rates(ask: OperationRequest) -> OperationReply:
    """Return every rate."""
    return OperationReply(
        Listed(tuple(_rate(name, rate) for name, rate in sorted((await ask.hub.app.rates.list()).items())))
    )


async def get_rate(ask: OperationRequest) -> OperationReply:
    """Return one rate."""
    name = ask.path["name"]
    rate = (await ask.hub.app.rates.list()).get(name)
    if rate is None:
        raise no_such("rate", f"nobody has defined a rate {name!r}")
    return OperationReply(_rate(name, rate))


async def set_rate(ask: OperationRequest) -> OperationReply:
    """Make or change a rate."""
    app, name, said = ask.hub.app, ask.path["name"], ask.body
    rate = Rate(said.limit, per=said.per, kind=said.kind, keyed=said.keyed)
    await app.rates.set(name, rate, by=ask.caller.name)
    return OperationReply(_rate(name, rate, await warnings_about(app, "rate", name)))


async def reset_rate(ask: OperationRequest) -> OperationReply:
    """Drop the rate that was set while running; the rate in code remains."""
    await ask.hub.app.rates.reset(ask.path["name"], by=ask.caller.name)
    rate = (await ask.hub.app.rates.list()).get(ask.path["name"])
    return OperationReply(status=204) if rate is None else OperationReply(_rate(ask.path["name"], rate))


async def forget_rate(ask: OperationRequest) -> OperationReply:
    """Delete a stored rate."""
    await ask.hub.app.rates.forget(ask.path["name"], by=ask.caller.name)
    return OperationReply(status=204)


def _rate(name: str, rate: Rate, warnings: tuple[str, ...] = ()) -> RateView:
    return RateView(name=name, limit=rate.limit, per=rate.per, kind=rate.kind, keyed=rate.keyed, warnings=warnings)


_LIMIT = {
    "task": "resize",
    "max_concurrency": 5,
    "max_per_key": 1,
    "rates": ["stripe"],
    "live": True,
    "unreadable": None,
    "warnings": [],
}
_RATE = {"name": "stripe", "limit": 100, "per": 60.0, "kind": "sliding", "keyed": False, "warnings": []}

_limit_of = operations_of("/api/limits/{task:path}", {"task": "resize"}, LimitView, _LIMIT)
_rate_of = operations_of("/api/rates/{name:path}", {"name": "stripe"}, RateView, _RATE)

OPERATIONS = (
    Operation(
        path="/api/limits",
        summary="The limits of every limited task",
        scope="read",
        do=list_limits,
        gives={200: Listed[LimitInfo]},
        answered={"items": [{name: value for name, value in _LIMIT.items() if name != "warnings"}]},
    ),
    _limit_of("GET", "The limits of one task", "read", get_limit),
    _limit_of(
        "PATCH",
        "Change the limits of a task; what is set here overrides the code until it is reset",
        "admin",
        set_limit,
        body=LimitSettings,
        example={"max_concurrency": 5, "max_per_key": 1, "rates": ["stripe"]},
    ),
    _limit_of(
        "POST /reset",
        "Drop the limits of a task that were set while running; the code applies again",
        "admin",
        reset_limit,
        answered=_LIMIT | {"live": False},
    ),
    _limit_of(
        "DELETE", "Delete all stored limits of a task, those from code included; its jobs stay", "admin", forget_limit
    ),
    Operation(
        path="/api/rates",
        summary="Every rate",
        scope="read",
        do=list_rates,
        gives={200: Listed[RateView]},
        answered={"items": [_RATE]},
    ),
    _rate_of("GET", "One rate", "read", get_rate),
    _rate_of(
        "PUT",
        "Make or change a rate; what is set here overrides the code until it is reset",
        "admin",
        set_rate,
        body=RateSettings,
        example={"limit": 100, "per": 60, "kind": "sliding"},
    ),
    _rate_of(
        "POST /reset",
        "Drop what was set of a rate while running; the code applies again (204: it says nothing of it)",
        "admin",
        reset_rate,
        gives={200: RateView, 204: None},
    ),
    _rate_of(
        "DELETE",
        "Delete a stored rate; tasks and queues that name it are not limited by it any more",
        "admin",
        forget_rate,
    ),
)
