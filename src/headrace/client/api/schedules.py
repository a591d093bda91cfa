"""``app.schedules``: make, list, pause, trigger and delete schedules, and preview when they fire."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec

from headrace.client.api.noun import Noun
from headrace.client.api.workers import workers
from headrace.client.draft import Draft
from headrace.client.handle import JobHandle
from headrace.core import audit
from headrace.core.attempt import Event
from headrace.core.codec.record import Record
from headrace.core.schedule.fires import preview as next_fires
from headrace.core.schedule.rules import Continuous, Cron, Every, Rule
from headrace.core.schedule.schedule import ScheduleDoc, State, new_schedule
from headrace.engine import Engine
from headrace.errors import ConfigError, shown
from headrace.maintenance import schedules
from headrace.maintenance.continuous import cancel_surplus

if TYPE_CHECKING:
    from headrace.client.task import Task

__all__ = ["ScheduleInfo", "SchedulesApi", "announce_schedules"]

_MAX_PREVIEW_FIRES = 1000


class ScheduleInfo(msgspec.Struct, Record, frozen=True, kw_only=True):
    """A schedule: its rule, its task, its state, and when it fires."""

    name: str
    rule: Rule
    task: str
    state: State
    """``active``; ``paused`` by a person; ``retired``: the code no longer has it; ``unserved``: no live worker has its
    task; ``ended``: its last fire is over."""
    next_fire: datetime | None
    """None if it is paused, retired, ended or continuous."""
    last_fire: datetime | None
    """The newest fire that made a job."""
    last_job: UUID | None
    """The job it made."""
    skipped: int
    """Fires that made no job because one of an earlier fire was live."""
    waiting: datetime | None
    """The fire that waits for the live job to end (``overlap="wait"``)."""
    paused: bool
    source: Literal["code", "dynamic"]
    queue: str
    priority: int
    payload: dict[str, Any]
    created_at: datetime

    @classmethod
    def of(cls, doc: ScheduleDoc, tasks: Collection[str]) -> ScheduleInfo:
        """A stored schedule as it is shown; ``tasks`` are those that live workers have."""
        of_doc = {name: getattr(doc, name) for name in cls.__struct_fields__ if name not in _OF_SPEC}
        payload = msgspec.json.decode(doc.payload_text, type=dict[str, Any])
        own: dict[str, Any] = {"queue": doc.spec.queue, "priority": doc.spec.priority, "payload": payload}
        return cls(state=doc.state(served=doc.task in tasks), **own, **of_doc)


_OF_SPEC = ("state", "queue", "priority", "payload")
"""The fields of a ScheduleInfo that are no attributes of the stored schedule."""


class SchedulesApi(Noun):
    """The schedules of the store; ``@app.task(schedule=…)`` declares one in code."""

    async def list(self) -> builtins.list[ScheduleInfo]:
        """Every schedule, by name."""
        docs = await schedules.list_schedules(self._engine)
        tasks = await self._served() if docs else ()
        return [ScheduleInfo.of(doc, tasks) for doc in docs]

    async def get(self, name: str) -> ScheduleInfo:
        """One schedule; :raises UnknownSchedule:"""
        return await self._info(await schedules.find_schedule(self._engine, name))

    async def set(self, name: str, rule: Rule, draft: Draft[Any], *, by: str | None = None) -> ScheduleInfo:
        """Make a schedule that submits the draft's task and payload whenever the rule fires.

        A schedule of this name is changed; if it is paused, it stays paused until ``resume``.

        :raises ConfigError: the rule never fires from now on, or code defines a schedule of this name
        """
        if not isinstance(draft, Draft):
            raise TypeError(f"schedule {name!r} takes a draft, as of task.draft(...), not {type(draft).__name__}")
        draft._refuse_times("a schedule says when its jobs run")
        now = self._host.clock.now()
        doc = _firing(new_schedule(name, rule, draft._spec(now), draft.payload_text, now))
        return await self._info(await schedules.create_schedule(self._engine, doc, self._act("set", by, doc.task)))

    async def edit(
        self, name: str, rule: Rule, draft: Draft[Any] | None = None, *, by: str | None = None
    ) -> ScheduleInfo:
        """Change the rule of a schedule, and the payload to that of the draft; its task and their options stay.

        :raises UnknownSchedule:
        :raises ConfigError: the rule never fires from now on, or code defines the schedule
        """
        known = await schedules.find_schedule(self._engine, name)
        act = self._act("set", by, known.task)
        _firing(new_schedule(name, rule, known.spec, known.payload_text, act.at))
        payload = None if draft is None else draft.payload_text
        return await self._info(await schedules.edit_schedule(self._engine, name, rule, payload, act.at, act))

    async def preview(self, schedule: str | Cron | Every, n: int = 5) -> builtins.list[datetime]:
        """The next ``n`` fires, in UTC, of a schedule by its name (as if it were not paused) or of a rule from now on.

        :raises UnknownSchedule:
        :raises ConfigError: it is continuous, and so has no fires
        """
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= _MAX_PREVIEW_FIRES:
            raise ConfigError(f"n must be a whole number from 1 to {_MAX_PREVIEW_FIRES}, not {shown(n)}")
        now = self._host.clock.now()
        if isinstance(schedule, Cron | Every):
            return next_fires(schedule, now, now, n)
        if not isinstance(schedule, str):
            raise ConfigError(f"preview takes the name of a schedule, a Cron or an Every, not {shown(schedule)}")
        doc = await schedules.find_schedule(self._engine, schedule)
        if isinstance(doc.rule, Continuous):
            raise ConfigError(f"schedule {shown(schedule)} is continuous: it runs all the time and has no fires")
        return next_fires(doc.rule, max(now, doc.cursor), doc.anchor, n)

    async def pause(self, name: str, *, by: str | None = None) -> ScheduleInfo:
        """Pause a schedule; current runs of a continuous one finish and are not followed; :raises UnknownSchedule:"""
        return await self._info(await schedules.pause_schedule(self._engine, name, self._act("pause", by)))

    async def resume(self, name: str, *, by: str | None = None) -> ScheduleInfo:
        """Resume a paused schedule; missed fires are not made up for; :raises UnknownSchedule:"""
        act = self._act("resume", by)
        return await self._info(await schedules.resume_schedule(self._engine, name, act.at, act))

    async def trigger(self, name: str, *, by: str | None = None) -> JobHandle[Any]:
        """Submit a schedule's job now, besides its fires; :raises UnknownSchedule:"""
        job = await schedules.trigger_schedule(self._engine, self._session.writer, self._host, name, by)
        return JobHandle(self._app, job.id, last=job)

    async def delete(self, name: str, *, by: str | None = None) -> None:
        """Remove a schedule; its jobs stay, but runs of a continuous one are cancelled; :raises UnknownSchedule:"""
        await schedules.delete_schedule(self._engine, name, self._act("delete", by))
        # What fails would be tried again and again, and nothing would be left to end that.
        await cancel_surplus(self._engine, self._session.writer, self._host, name, running=True)

    def _act(self, verb: str, by: str | None, task: str | None = None) -> Event:
        return audit.act(verb, self._host.clock.now(), by, None if task is None else {"task": task})

    async def _info(self, doc: ScheduleDoc) -> ScheduleInfo:
        return ScheduleInfo.of(doc, await self._served())

    async def _served(self) -> frozenset[str]:
        """The tasks of live workers."""
        return frozenset(task for row in await workers(self._session) if row.alive for task in row.info.tasks)


def _firing(doc: ScheduleDoc) -> ScheduleDoc:
    """The schedule, if it will ever fire; :raises ConfigError:"""
    if doc.state() == "ended":
        why = f"{doc.rule} has no fire after now and before its end"
        raise ConfigError(f"schedule {doc.name!r} would never fire: {why}")
    return doc


async def announce_schedules(
    engine: Engine, tasks: Iterable[Task[Any, Any]], names: Collection[str], now: datetime
) -> None:
    """Bring the schedules of these tasks up to date in the store; ``names`` are the tasks' own and their aliases."""
    docs = []
    for task in {task.name: task for task in tasks}.values():
        if (rule := task.handler.policy.schedule) is not None:
            draft = task._draft_bound({})
            docs.append(new_schedule(task.name, rule, draft._spec(now), draft.payload_text, now, "code"))
    # By alias too: the schedule of a task that was renamed would fire on beside the one of its new name.
    await schedules.sync_schedules(engine, docs, now, tasks=names)
