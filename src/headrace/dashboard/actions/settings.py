"""Actions on everything but jobs: queues, limits, rates, schedules, workers."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from headrace.client.api.limit_settings import strange_name
from headrace.core.defaults import MAX_COUNT, MAX_NAME_CHARACTERS
from headrace.core.limits.rate import Rate
from headrace.core.schedule.localtime import zone
from headrace.core.schedule.rules import Cron, Every, Rule, Timed
from headrace.dashboard.actions.endpoint import Act, ActionRefused, Done
from headrace.dashboard.actions.jobs import may_submit, payload_of
from headrace.dashboard.format import length
from headrace.dashboard.page import PageRequest
from headrace.dashboard.pages.schedules import fires_of
from headrace.errors import ConfigError

__all__ = ["ACTS"]

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
Amount = Annotated[int, Meta(ge=1, le=MAX_COUNT)]


class Named(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Something that has a name."""

    name: Name


class SetQueue(Named, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """New settings of a queue; omitted ones stay as they are."""

    priority: Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)] | None = None
    max_concurrency: Amount | None = None
    rates: tuple[Name, ...] | None = None
    by_customer: bool | None = None


class SetLimit(Named, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """New limits of a task."""

    max_concurrency: Amount | None = None
    max_per_key: Amount | None = None
    rates: tuple[Name, ...] | None = None


class SetRate(Named, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A rate to be made or changed."""

    limit: Amount
    per: Annotated[float, Meta(ge=0.001, le=366 * 86400.0)]
    kind: Literal["fixed", "sliding", "bucket"] = "sliding"
    keyed: bool = False


async def pause_queue(ask: PageRequest, told: Named) -> Done:
    """Pause a queue: start none of its jobs."""
    await ask.app.queues.pause(told.name, by=ask.viewer.name)
    return Done(told=f"Queue {told.name} is paused; what runs goes on.")


async def resume_queue(ask: PageRequest, told: Named) -> Done:
    """Resume a queue: start its jobs again."""
    await ask.app.queues.resume(told.name, by=ask.viewer.name)
    return Done(told=f"Queue {told.name} goes on.")


async def set_queue(ask: PageRequest, told: SetQueue) -> Done:
    """Change the settings of a queue."""
    said = {name: value for name, value in msgspec.structs.asdict(told).items() if name != "name"}
    await ask.app.queues.set(told.name, **said, by=ask.viewer.name)
    return Done(told=f"Queue {told.name} is set.")


async def reset_queue(ask: PageRequest, told: Named) -> Done:
    """Return to the settings in code."""
    await ask.app.queues.reset(told.name, by=ask.viewer.name)
    return Done(told=f"For queue {told.name} the code applies again.")


async def set_limit(ask: PageRequest, told: SetLimit) -> Done:
    """Change the limits of a task."""
    said = {name: value for name, value in msgspec.structs.asdict(told).items() if name != "name"}
    await ask.app.limits.set(told.name, **said, by=ask.viewer.name)
    return Done(told=f"The limits of {told.name} are set.", go=ask.link(f"/limits/{told.name}"))


async def reset_limit(ask: PageRequest, told: Named) -> Done:
    """Return to the limits in code."""
    await ask.app.limits.reset(told.name, by=ask.viewer.name)
    return Done(told=f"For task {told.name} the code applies again.")


async def check_rates(ask: PageRequest, told: SetQueue | SetLimit) -> Done:
    """Check that the rates exist: an unknown rate limits nothing, and may be a typing error."""
    known = await ask.shared("rates", ask.app.rates.list)
    for name in told.rates or ():
        if name not in known:
            raise ActionRefused(400, f"There is no rate {name!r}: it limits nothing until it is set.", "rates")
    return Done()


async def check_limit(ask: PageRequest, told: SetLimit) -> Done:
    """Check that the task is known, and that the rates exist."""
    if (strange := await strange_name(ask.app, "task", told.name)) is not None:
        raise ActionRefused(400, f"{strange[:1].upper()}{strange[1:]}.", "name")
    return await check_rates(ask, told)


async def check_rate(ask: PageRequest, told: SetRate) -> Done:
    """Check that it is a valid rate; return whether there is one of this name."""
    Rate(told.limit, per=told.per, kind=told.kind, keyed=told.keyed)
    if (there := (await ask.shared("rates", ask.app.rates.list)).get(told.name)) is not None:
        raise ActionRefused(
            400, f"It is there, and allows {there.limit} in {length(there.per)}: this changes it.", "name"
        )
    return Done()


async def set_rate(ask: PageRequest, told: SetRate) -> Done:
    """Make or change a rate."""
    rate = Rate(told.limit, per=told.per, kind=told.kind, keyed=told.keyed)
    await ask.app.rates.set(told.name, rate, by=ask.viewer.name)
    return Done(told=f"The rate {told.name} is set.")


async def forget_rate(ask: PageRequest, told: Named) -> Done:
    """Delete a rate."""
    await ask.app.rates.forget(told.name, by=ask.viewer.name)
    return Done(told=f"The rate {told.name} is deleted.")


# -- schedules


class SetSchedule(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A schedule as a form sends it: to be made or changed."""

    name: Annotated[str, Meta(max_length=MAX_NAME_CHARACTERS)] = ""
    """Empty while the viewer types."""
    task: Name
    payload: dict[str, Any] = {}

    kind: Literal["cron", "every"]
    expr: Annotated[str, Meta(max_length=200)] = ""
    tz: Annotated[str, Meta(max_length=100)] = "UTC"
    seconds: Annotated[float, Meta(ge=0)] = 0.0
    overlap: Literal["allow", "skip", "wait"] = "allow"
    catch_up: Literal["once", "skip", "all"] = "once"

    def rule(self, before: Rule | None = None) -> Cron | Every:
        """Return the rule; what a form does not show stays as before. :raises ActionRefused: it is not valid"""
        kept: dict[str, Any] = {"overlap": self.overlap, "catch_up": self.catch_up}
        if isinstance(before, Timed):
            kept |= {name: getattr(before, name) for name in ("cap", "jitter", "start", "end")}
        try:
            zone(self.tz)
        except ConfigError as error:
            raise ActionRefused(400, str(error), "tz") from None
        try:
            if self.kind == "cron":
                return Cron(self.expr, tz=self.tz, **kept)
            return Every(seconds=self.seconds, **kept)
        except ConfigError as error:
            raise ActionRefused(400, str(error), "expr" if self.kind == "cron" else "seconds") from None


async def try_schedule(ask: PageRequest, told: SetSchedule) -> Done:
    """Return when it would fire, and check that its payload fits the task."""
    rule = told.rule()
    fires = fires_of(rule, await ask.app.schedules.preview(rule, 6))
    data = [{"at": one.at, "local": one.local, "offset": one.offset, "shifted": one.shifted} for one in fires]
    await payload_of(ask, told.task, told.payload, data)
    return Done(data=data)


async def set_schedule(ask: PageRequest, told: SetSchedule) -> Done:
    """Make a schedule, or change the one of this name."""
    if not told.name:
        raise ActionRefused(400, "Give it a name.", "name")
    draft = await payload_of(ask, told.task, told.payload)
    may_submit(ask, draft.task, draft.options.get("queue", "default"))
    await ask.app.schedules.set(told.name, told.rule(), draft, by=ask.viewer.name)
    return Done(told=f"Schedule {told.name} is set.", go=ask.link(f"/schedules/{told.name}"))


async def edit_schedule(ask: PageRequest, told: SetSchedule) -> Done:
    """Change the rule and the payload of a schedule."""
    known = await ask.app.schedules.get(told.name)
    may_submit(ask, known.task, known.queue)
    draft = await payload_of(ask, known.task, told.payload)
    await ask.app.schedules.edit(told.name, told.rule(known.rule), draft, by=ask.viewer.name)
    return Done(told=f"Schedule {told.name} is changed.")


async def pause_schedule(ask: PageRequest, told: Named) -> Done:
    """Pause a schedule."""
    await ask.app.schedules.pause(told.name, by=ask.viewer.name)
    return Done(told=f"Schedule {told.name} is paused.")


async def resume_schedule(ask: PageRequest, told: Named) -> Done:
    """Resume a schedule."""
    await ask.app.schedules.resume(told.name, by=ask.viewer.name)
    return Done(told=f"Schedule {told.name} fires again.")


async def trigger_schedule(ask: PageRequest, told: Named) -> Done:
    """Submit the job of a schedule now."""
    known = await ask.app.schedules.get(told.name)
    may_submit(ask, known.task, known.queue)
    handle = await ask.app.schedules.trigger(told.name, by=ask.viewer.name)
    return Done(told="The job is submitted.", go=ask.link(f"/jobs/{handle.id}"))


async def delete_schedule(ask: PageRequest, told: Named) -> Done:
    """Delete a schedule."""
    await ask.app.schedules.delete(told.name, by=ask.viewer.name)
    return Done(told=f"Schedule {told.name} is deleted; its jobs stay.", go=ask.link("/schedules"))


# -- workers


class OfWorker(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A worker."""

    id: UUID


async def drain_worker(ask: PageRequest, told: OfWorker) -> Done:
    """Have a worker finish its jobs, and stop."""
    row = next((one for one in await ask.app.workers.list() if one.info.id == told.id), None)
    if row is not None and row.info.tasks and all(task.startswith("headrace.") for task in row.info.tasks):
        raise ActionRefused(409, "This worker is part of a hub, and leaves with it.")
    await ask.app.workers.drain(told.id, by=ask.viewer.name)
    return Done(told="The worker takes no more jobs, and leaves when it is done.")


ACTS: dict[str, Act] = {
    "queue.pause": Act("act", Named, pause_queue),
    "queue.resume": Act("act", Named, resume_queue),
    "queue.set": Act("admin", SetQueue, set_queue, check=check_rates),
    "queue.reset": Act("admin", Named, reset_queue),
    "limit.set": Act("admin", SetLimit, set_limit, check=check_limit),
    "limit.reset": Act("admin", Named, reset_limit),
    "rate.set": Act("admin", SetRate, set_rate, check=check_rate),
    "rate.forget": Act("admin", Named, forget_rate),
    "schedule.set": Act("admin", SetSchedule, set_schedule, check=try_schedule),
    "schedule.edit": Act("admin", SetSchedule, edit_schedule, check=try_schedule),
    "schedule.pause": Act("act", Named, pause_schedule),
    "schedule.resume": Act("act", Named, resume_schedule),
    "schedule.trigger": Act("act", Named, trigger_schedule),
    "schedule.delete": Act("admin", Named, delete_schedule),
    "worker.drain": Act("act", OfWorker, drain_worker),
}
