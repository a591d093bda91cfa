"""Which names of queues, tasks and rates mean anything: a setting for any other name may be a typing error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.client.api.limit_settings import PREFIXES, Named
from headrace.client.api.tasks import known_tasks
from headrace.core.limits.settings import QueueRule, TaskRule, limits_of
from headrace.engine import Engine
from headrace.maintenance.schedules import list_schedules
from headrace.worker.handler import Handler

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["known_names", "strange_name"]


async def known_names(app: App, of: Named) -> frozenset[str]:
    """The queues, tasks or rates (``of``) that code, a job, a schedule or a live worker names. What was only set while
    workers ran is not among them: that may have been a slip."""
    engine, declared, handlers, now = app.session.engine, app._declared, app._handlers, app.host.clock.now()
    found = {key.removeprefix(PREFIXES[of]) for key in declared if key.startswith(PREFIXES[of])}
    for setting in await engine.documents.settings(PREFIXES[of]):
        if _in_code(setting.value):
            found.add(setting.key.removeprefix(PREFIXES[of]))
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
    try:
        return bool(msgspec.json.decode(document, type=dict[str, Any]).get("code"))
    except msgspec.MsgspecError:
        return True  # what only another version can read is not ours to judge


async def _rates_named(
    engine: Engine, declared: Mapping[str, Mapping[str, Any]], handlers: Mapping[str, Handler]
) -> set[str]:
    limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
    rules: list[QueueRule | TaskRule] = [*limits.queues.values(), *limits.tasks.values()]
    rules += (one.policy.limits for one in handlers.values())
    return {rate for rule in rules for rate in rule.rates} | {
        rate for said in declared.values() for rate in said.get("rates", ())
    }


async def strange_name(app: App, of: Named, name: str) -> str | None:
    """A sentence if nothing names a queue, task or rate (``of``) like this, which may be a slip; else None."""
    if name in await known_names(app, of):
        return None
    if of == "rate":
        return f"no task, no queue and no code names the rate {name!r}"
    return f"no job, no live worker and no code knows a {of} named {name!r}"
