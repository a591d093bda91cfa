"""Operations about schedules: show, make, pause, trigger, delete, and preview."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec

from headrace.client.api.schedules import ScheduleInfo
from headrace.client.submission.by_name import draft_with_warnings
from headrace.core.defaults import MIN_HEARTBEAT_SECONDS
from headrace.core.priority import GivenPriority
from headrace.core.schedule.localtime import zone
from headrace.core.schedule.rules import Continuous, Cron, Every, Rule
from headrace.core.status import Status
from headrace.hub.api.documents import Listed, Name
from headrace.hub.auth.customers import may_submit, not_ours
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest, operations_of

__all__ = ["OPERATIONS", "CronRule", "EveryRule", "Fire", "NewSchedule", "RuleToTry", "ScheduleView", "Triggered"]

Fires = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class CronRule(Cron, frozen=True, tag="cron", tag_field="kind", forbid_unknown_fields=True):
    """Fires when the clocks in ``tz`` match the expression: five fields, or six with seconds first, or ``@daily`` …"""


class EveryRule(Every, frozen=True, tag="every", tag_field="kind", forbid_unknown_fields=True):
    """Fires at a steady interval of at least 0.1 s, counted from ``start``, else from the creation of the schedule."""


class ContinuousRule(Continuous, frozen=True, tag="continuous", tag_field="kind", forbid_unknown_fields=True):
    """Runs all the time: when a run ends, the next begins; after a failure, when the cool-down is over."""


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule to be made, or changed."""

    rule: CronRule | EveryRule | ContinuousRule
    task: Name
    """The task that each fire submits."""
    payload: dict[str, Any] = {}
    queue: Name | None = None
    """None, here and below: the task's own."""
    priority: GivenPriority | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Seconds."""
    heartbeat: Annotated[float, msgspec.Meta(ge=MIN_HEARTBEAT_SECONDS)] | None = None
    """Seconds within which a running job must report something."""
    tags: tuple[Name, ...] | None = None
    metadata: dict[str, Any] | None = None
    requires: dict[str, Any] | None = None
    """What a worker must offer."""
    customer: Annotated[str, msgspec.Meta(min_length=1, max_length=512)] | None = None


class RuleToTry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule to preview; nothing is stored."""

    rule: CronRule | EveryRule
    n: Fires = 5
    """How many fires."""


class ScheduleView(ScheduleInfo, frozen=True, kw_only=True):
    """A schedule: its rule, its task, its state, and when it fires."""

    warnings: tuple[str, ...] = ()
    """Possible typing errors, such as an unregistered task."""


class HowMany(msgspec.Struct, frozen=True):
    """How many fires are requested."""

    n: Fires = 5


class Fire(msgspec.Struct, frozen=True):
    """A moment at which a schedule fires."""

    at: datetime
    local: str
    """The same moment as the clocks in the zone of the rule show it."""


class Triggered(msgspec.Struct, frozen=True):
    """The job that a trigger submitted."""

    job_id: UUID
    status: Status
    created_at: datetime


async def list_schedules(ask: OperationRequest) -> OperationReply:
    """Return every schedule."""
    return OperationReply(Listed(tuple(await ask.hub.app.schedules.list())))


async def get_schedule(ask: OperationRequest) -> OperationReply:
    """Return one schedule."""
    return OperationReply(await ask.hub.app.schedules.get(ask.path["name"]))


async def put_schedule(ask: OperationRequest) -> OperationReply:
    """Make a schedule, or change the one of this name."""
    app, said = ask.hub.app, msgspec.structs.asdict(ask.body)
    rule, task, payload = _plain(said.pop("rule")), said.pop("task"), said.pop("payload")
    options = {name: value for name, value in said.items() if value is not None}
    draft, warnings = await draft_with_warnings(app, task, payload, options)
    queue = draft.options.get("queue", "default")
    not_ours(draft.task, queue)
    may_submit(ask, draft.task, queue)
    made = await app.schedules.set(ask.path["name"], rule, draft, by=ask.caller.name)
    return OperationReply(ScheduleView(**msgspec.structs.asdict(made), warnings=warnings))


async def delete_schedule(ask: OperationRequest) -> OperationReply:
    """Delete a schedule."""
    await ask.hub.app.schedules.delete(ask.path["name"], by=ask.caller.name)
    return OperationReply(status=204)


async def pause_schedule(ask: OperationRequest) -> OperationReply:
    """Pause a schedule."""
    return OperationReply(await ask.hub.app.schedules.pause(ask.path["name"], by=ask.caller.name))


async def resume_schedule(ask: OperationRequest) -> OperationReply:
    """Resume a schedule."""
    return OperationReply(await ask.hub.app.schedules.resume(ask.path["name"], by=ask.caller.name))


async def trigger_schedule(ask: OperationRequest) -> OperationReply:
    """Submit the job of a schedule now."""
    known = await ask.hub.app.schedules.get(ask.path["name"])
    may_submit(ask, known.task, known.queue)
    handle = await ask.hub.app.schedules.trigger(ask.path["name"], by=ask.caller.name)
    job = handle.last or await handle.refresh()
    return OperationReply(Triggered(job.id, job.status, job.created_at), 201)


async def next_fires(ask: OperationRequest) -> OperationReply:
    """Return when a schedule fires next."""
    app, name = ask.hub.app, ask.path["name"]
    rule = (await app.schedules.get(name)).rule
    return OperationReply(_fires(await app.schedules.preview(name, ask.query.n), rule))


async def try_rule(ask: OperationRequest) -> OperationReply:
    """Return when a schedule with this rule would fire."""
    rule = _plain(ask.body.rule)
    assert isinstance(rule, Cron | Every)
    return OperationReply(_fires(await ask.hub.app.schedules.preview(rule, ask.body.n), rule))


def _plain(rule: Rule) -> Rule:
    """Return the rule as schedules store it, which accept fields of a newer version."""
    plain: Rule = msgspec.convert(msgspec.to_builtins(rule), Rule)
    return plain


def _fires(fires: list[datetime], rule: Rule) -> Listed[Fire]:
    where = zone(getattr(rule, "tz", "UTC"))
    return Listed(tuple(Fire(at.astimezone(UTC), at.astimezone(where).isoformat()) for at in fires))


_RULE = {"kind": "cron", "expr": "0 2 * * *", "tz": "Europe/Berlin"}
_VIEW = {
    "name": "nightly",
    "rule": {
        **_RULE,
        "catch_up": "once",
        "cap": 100,
        "overlap": "allow",
        "jitter": 0.0,
        "start": None,
        "end": None,
    },
    "task": "resize",
    "state": "active",
    "next_fire": "2026-11-17T01:00:00Z",
    "last_fire": "2026-11-16T01:00:00Z",
    "last_job": "019a8a3e-4b00-7c3e-8a54-0f4f6f2b9c11",
    "skipped": 0,
    "waiting": None,
    "paused": False,
    "source": "dynamic",
    "queue": "images",
    "priority": 70,
    "payload": {"image": "cat.png", "width": 320},
    "created_at": "2026-11-01T09:00:00Z",
}
_FIRES = {
    "items": [
        {"at": "2026-11-17T01:00:00Z", "local": "2026-11-17T02:00:00+01:00"},
        {"at": "2026-11-18T01:00:00Z", "local": "2026-11-18T02:00:00+01:00"},
    ]
}

_schedule = operations_of("/api/schedules/{name:path}", {"name": "nightly"}, ScheduleInfo, _VIEW)

OPERATIONS = (
    Operation(
        path="/api/schedules",
        summary="Every schedule",
        scope="read",
        do=list_schedules,
        gives={200: Listed[ScheduleInfo]},
        answered={"items": [_VIEW]},
    ),
    Operation(
        method="POST",
        path="/api/schedules/fires",
        summary="When a schedule with this rule would fire; nothing is stored",
        scope="read",
        bounded="nothing",
        do=try_rule,
        body=RuleToTry,
        gives={200: Listed[Fire]},
        example={"rule": _RULE, "n": 2},
        answered=_FIRES,
    ),
    _schedule(
        "GET /fires",
        "When a schedule fires next, as if it were not paused",
        "read",
        next_fires,
        query=HowMany,
        gives={200: Listed[Fire]},
        answered=_FIRES,
    ),
    _schedule("GET", "One schedule", "read", get_schedule),
    _schedule(
        "PUT",
        "Make a schedule, or change the one of this name; one that is paused stays so",
        "admin",
        put_schedule,
        body=NewSchedule,
        gives={200: ScheduleView},
        refuses=(422,),
        example={"rule": _RULE, "task": "resize", "payload": {"image": "cat.png", "width": 320}},
        answered=_VIEW | {"warnings": []},
    ),
    _schedule(
        "DELETE",
        "Remove a schedule; its jobs stay, but runs of a continuous one are cancelled",
        "admin",
        delete_schedule,
    ),
    _schedule(
        "POST /pause",
        "Pause a schedule; current runs of a continuous one finish and are not followed",
        "act",
        pause_schedule,
        answered=_VIEW | {"state": "paused", "paused": True, "next_fire": None},
    ),
    _schedule("POST /resume", "Resume a paused schedule; missed fires are not made up for", "act", resume_schedule),
    _schedule(
        "POST /trigger",
        "Submit a schedule's job now, besides its fires",
        "act",
        trigger_schedule,
        gives={201: Triggered},
        refuses=(404, 409, 422),
        answered={
            "job_id": "019a8b41-7d20-7f0a-9b1c-2f6f0a3f1f52",
            "status": "queued",
            "created_at": "2026-11-16T10:03:15Z",
        },
    ),
)
