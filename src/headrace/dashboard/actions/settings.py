"""Actions on everything but jobs: queues, limits, rates, schedules, workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from headrace.client.api.known_names import strange_name
from headrace.core.defaults import MAX_COUNT, MAX_NAME_CHARACTERS
from headrace.core.limits.rate import Rate
from headrace.core.schedule.localtime import zone
from headrace.core.schedule.rules import Cron, Every, Rule, Timed
from headrace.dashboard.actions.endpoint import Act, ActionRefused, Does, Done
from headrace.dashboard.actions.jobs import may_submit, payload_of
from headrace.dashboard.format import length
from headrace.dashboard.page import PageRequest
from headrace.dashboard.pages.schedules import fires_of
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.app import App

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


def _on_named(change: Callable[[App], Callable[..., Awaitable[Any]]], text: str, go: str | None = None) -> Does:
    """Return an action that calls ``change`` with a name and the other fields of the form.

    ``text``: the sentence for the viewer; ``go``: the page to open next; both with ``{}`` for the name.
    """

    async def do(ask: PageRequest, given: Named) -> Done:
        fields = msgspec.structs.asdict(given)
        name = fields.pop("name")
        await change(ask.app)(name, **fields, by=ask.viewer.name)
        return Done(told=text.format(name), go=go and ask.link(go.format(name)))

    return do


async def check_rates(ask: PageRequest, given: SetQueue | SetLimit) -> Done:
    """Check that the rates exist: an unknown rate limits nothing, and may be a typing error."""
    known = await ask.shared("rates", ask.app.rates.list)
    for name in given.rates or ():
        if name not in known:
            raise ActionRefused(400, f"There is no rate {name!r}: it limits nothing until it is set.", "rates")
    return Done()


async def check_limit(ask: PageRequest, given: SetLimit) -> Done:
    """Check that the task is known, and that the rates exist."""
    if (strange := await strange_name(ask.app, "task", given.name)) is not None:
        raise ActionRefused(400, f"{strange[:1].upper()}{strange[1:]}.", "name")
    return await check_rates(ask, given)


async def check_rate(ask: PageRequest, given: SetRate) -> Done:
    """Check that it is a valid rate; return whether there is one of this name."""
    Rate(given.limit, per=given.per, kind=given.kind, keyed=given.keyed)
    if (there := (await ask.shared("rates", ask.app.rates.list)).get(given.name)) is not None:
        raise ActionRefused(
            400, f"It is there, and allows {there.limit} in {length(there.per)}: this changes it.", "name"
        )
    return Done()


async def set_rate(ask: PageRequest, given: SetRate) -> Done:
    """Make or change a rate."""
    rate = Rate(given.limit, per=given.per, kind=given.kind, keyed=given.keyed)
    await ask.app.rates.set(given.name, rate, by=ask.viewer.name)
    return Done(told=f"The rate {given.name} is set.")


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


async def try_schedule(ask: PageRequest, given: SetSchedule) -> Done:
    """Return when it would fire, and check that its payload fits the task."""
    rule = given.rule()
    fires = fires_of(rule, await ask.app.schedules.preview(rule, 6))
    data = [{"at": one.at, "local": one.local, "offset": one.offset, "shifted": one.shifted} for one in fires]
    await payload_of(ask, given.task, given.payload, data)
    return Done(data=data)


async def set_schedule(ask: PageRequest, given: SetSchedule) -> Done:
    """Make a schedule, or change the one of this name."""
    if not given.name:
        raise ActionRefused(400, "Give it a name.", "name")
    draft = await payload_of(ask, given.task, given.payload)
    may_submit(ask, draft.task, draft.options.get("queue", "default"))
    await ask.app.schedules.set(given.name, given.rule(), draft, by=ask.viewer.name)
    return Done(told=f"Schedule {given.name} is set.", go=ask.link(f"/schedules/{given.name}"))


async def edit_schedule(ask: PageRequest, given: SetSchedule) -> Done:
    """Change the rule and the payload of a schedule."""
    known = await ask.app.schedules.get(given.name)
    may_submit(ask, known.task, known.queue)
    draft = await payload_of(ask, known.task, given.payload)
    await ask.app.schedules.edit(given.name, given.rule(known.rule), draft, by=ask.viewer.name)
    return Done(told=f"Schedule {given.name} is changed.")


async def trigger_schedule(ask: PageRequest, given: Named) -> Done:
    """Submit the job of a schedule now."""
    known = await ask.app.schedules.get(given.name)
    may_submit(ask, known.task, known.queue)
    handle = await ask.app.schedules.trigger(given.name, by=ask.viewer.name)
    return Done(told="The job is submitted.", go=ask.link(f"/jobs/{handle.id}"))


# -- workers


class OfWorker(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A worker."""

    id: UUID


async def drain_worker(ask: PageRequest, given: OfWorker) -> Done:
    """Have a worker finish its jobs, and stop."""
    row = next((one for one in await ask.app.workers.list() if one.info.id == given.id), None)
    if row is not None and row.info.own:
        raise ActionRefused(409, "This worker is part of a hub, and leaves with it.")
    await ask.app.workers.drain(given.id, by=ask.viewer.name)
    return Done(told="The worker takes no more jobs, and leaves when it is done.")


ACTS: dict[str, Act] = {
    "queue.pause": Act("act", Named, _on_named(lambda app: app.queues.pause, "Queue {} is paused; what runs goes on.")),
    "queue.resume": Act("act", Named, _on_named(lambda app: app.queues.resume, "Queue {} goes on.")),
    "task.pause": Act("act", Named, _on_named(lambda app: app.tasks.pause, "Task {} is paused; what runs goes on.")),
    "task.resume": Act("act", Named, _on_named(lambda app: app.tasks.resume, "Task {} goes on.")),
    "queue.set": Act("admin", SetQueue, _on_named(lambda app: app.queues.set, "Queue {} is set."), check=check_rates),
    "queue.reset": Act("admin", Named, _on_named(lambda app: app.queues.reset, "For queue {} the code applies again.")),
    "limit.set": Act(
        "admin",
        SetLimit,
        _on_named(lambda app: app.limits.set, "The limits of {} are set.", "/limits/{}"),
        check=check_limit,
    ),
    "limit.reset": Act("admin", Named, _on_named(lambda app: app.limits.reset, "For task {} the code applies again.")),
    "rate.set": Act("admin", SetRate, set_rate, check=check_rate),
    "rate.forget": Act("admin", Named, _on_named(lambda app: app.rates.forget, "The rate {} is deleted.")),
    "schedule.set": Act("admin", SetSchedule, set_schedule, check=try_schedule),
    "schedule.edit": Act("admin", SetSchedule, edit_schedule, check=try_schedule),
    "schedule.pause": Act("act", Named, _on_named(lambda app: app.schedules.pause, "Schedule {} is paused.")),
    "schedule.resume": Act("act", Named, _on_named(lambda app: app.schedules.resume, "Schedule {} fires again.")),
    "schedule.trigger": Act("act", Named, trigger_schedule),
    "schedule.delete": Act(
        "admin",
        Named,
        _on_named(lambda app: app.schedules.delete, "Schedule {} is deleted; its jobs stay.", "/schedules"),
    ),
    "worker.drain": Act("act", OfWorker, drain_worker),
}
