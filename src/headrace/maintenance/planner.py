"""The planner: submits one job for each fire of each schedule."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from uuid import UUID

from msgspec.structs import astuple

from headrace.core.defaults import MAX_CATCH_UP_FIRES, SKIP_GRACE_SECONDS, Retention
from headrace.core.schedule.fires import due_fires, latest_fires
from headrace.core.schedule.rules import Continuous
from headrace.core.schedule.schedule import ScheduleDoc, fire, fired
from headrace.engine import Engine, Inserted, Setting
from headrace.engine.bus import Hint, Topic
from headrace.errors import ConfigError, Overloaded, Unavailable
from headrace.maintenance.continuous import InstanceReconciler
from headrace.maintenance.duty import Duty
from headrace.maintenance.schedules import PREFIX, read
from headrace.runtime.host import Host
from headrace.runtime.writes.writer import Writer

__all__ = ["Planner"]

_log = logging.getLogger("headrace.planner")

_MAX_PAUSE_SECONDS = 15.0
_WAITING_PAUSE_SECONDS = 1.0
"""While a fire waits for the end of a job, or a continuous task is to be kept up."""


class Planner(Duty):
    """Makes each fire's job under the id derived from the fire, then moves the cursor; two at once make it once."""

    name = "planner"

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        host: Host,
        holder: UUID,
        retention: Retention | None = None,
        *,
        cap: int = MAX_CATCH_UP_FIRES,
    ) -> None:
        super().__init__(engine, writer, host, holder)
        kept = retention or engine.rules.retention
        self._kept = min(kept.completed, kept.failed, kept.cancelled)
        self.next_due: datetime | None = None
        """When the next fire is due, as of the last tick."""
        self._cap = cap
        self._instances = InstanceReconciler(engine, writer, host)
        self._waiting = False
        self._tasks: frozenset[str] | None = None
        """What live workers can run, as of this tick, once it was read."""
        self._settled: dict[str, tuple[int, datetime | None]] = {}
        """The versions of schedules that need no check before their next fire, and when that is."""
        self._complained: dict[str, int] = {}

    def _horizon(self, doc: ScheduleDoc) -> timedelta:
        """How far back fires are made up for: further back, a job may have been made and pruned, and its id be free."""
        own = () if doc.spec.retention is None else astuple(doc.spec.retention)
        return timedelta(seconds=max(SKIP_GRACE_SECONDS, min([self._kept, *(one for one in own if one is not None)])))

    async def main(self) -> None:
        """Tick until stopped; a change of the schedules calls for a tick at once."""
        unlisten = self.engine.bus.listen(frozenset({Topic.SETTINGS}), self._heard)
        try:
            await super().main()
        finally:
            unlisten()

    def _heard(self, hint: Hint) -> None:
        if not hint.names or any(name.startswith(PREFIX) for name in hint.names):
            self.nudge()

    def pause(self) -> float:
        """Seconds until the next fire; hints may be lost, so never for long."""
        longest = min(_WAITING_PAUSE_SECONDS if self._waiting else _MAX_PAUSE_SECONDS, self.rules.lease / 2)
        if self.next_due is None:
            return longest
        return min(longest, max(0.0, (self.next_due - self.host.clock.now()).total_seconds()))

    async def tick(self) -> int:
        """Make the jobs of every fire that is due; how many were submitted. Continuous tasks are tended as well."""
        await self.host.make_sure(self.engine)
        total, upcoming = 0, list[datetime | None]()
        self._waiting, self._tasks = False, None
        before, self._settled = self._settled, {}
        for setting in await self.engine.documents.settings(PREFIX):
            known = before.get(setting.key)
            if known is not None and known[0] == setting.rev and not self._is_due(known[1]):
                self._settled[setting.key] = known
                upcoming.append(known[1])
                continue
            doc = self._readable(setting)
            if doc is None:
                continue
            try:
                made, following = await self._serve(setting, doc)
            except (Unavailable, Overloaded):
                raise
            except Exception as error:
                # One schedule that cannot be served must not stop the others; it is tried again next time.
                self._complain(setting, f"schedule {doc.name!r} could not submit its job: {error!r}")
                continue
            total += made
            upcoming.append(following)
        self.next_due = min((at for at in upcoming if at is not None), default=None)
        return total

    def _is_due(self, at: datetime | None) -> bool:
        return at is not None and at <= self.host.clock.now()

    async def _serve(self, setting: Setting, doc: ScheduleDoc) -> tuple[int, datetime | None]:
        """Submit the due fires of one schedule; how many, and when the next is due."""
        settled = await self._instances.reconcile(setting, doc, self._served)
        if isinstance(doc.rule, Continuous):
            self._waiting |= doc.active
            return 0, None
        following = doc.next_fire
        if not doc.active or (doc.waiting is None and not self._is_due(following)):
            if settled:
                self._settled[setting.key] = setting.rev, following
            return 0, following
        if doc.source == "code" and doc.task not in await self._served():
            # Its code may be gone: jobs without a worker must not pile up. If it comes back, this is catching up.
            return 0, None
        made, doc = await self._fire(setting, doc)
        self._waiting |= doc.waiting is not None
        return made, doc.next_fire

    async def _served(self) -> frozenset[str]:
        if self._tasks is None:
            rows = await self.engine.workers.list()
            self._tasks = frozenset(task for row in rows if row.alive for task in row.info.tasks)
        return self._tasks

    async def _fire(self, setting: Setting, doc: ScheduleDoc) -> tuple[int, ScheduleDoc]:
        now = self.host.clock.now()
        newest = latest_fires(doc.rule, doc.cursor, now, doc.anchor, 1)
        due = due_fires(doc.rule, doc.cursor, now, doc.anchor, self._horizon(doc), self._cap)
        if doc.waiting is not None:
            due = [doc.waiting, *due]
        answers = await self.writer.inserts.insert_many([fire(doc, at, now) for at in due])
        done = dict(zip(due, (isinstance(answer, Inserted) for answer in answers), strict=True))
        made, held = [at for at in due if done[at]], [at for at in due if not done[at]]
        # Only after the jobs are durable: a planner that dies in between makes the same jobs again, under the same ids.
        moved = fired(doc, newest[-1] if newest else doc.cursor, made, held)
        if moved.skipped > doc.skipped or (moved.waiting is not None and moved.waiting != doc.waiting):
            _log.info("schedule %s: a job of an earlier fire is still live", doc.name)
        if moved != doc and await self.engine.documents.put_setting(setting.key, moved.to_text(), setting.rev) is None:
            # Another planner was here, or the schedule was changed: read again what it is now.
            self.nudge()
        return len(made), moved

    def _readable(self, setting: Setting) -> ScheduleDoc | None:
        try:
            return read(setting)
        except ConfigError as error:
            self._complain(setting, str(error))
            return None

    def _complain(self, setting: Setting, message: str) -> None:
        """Log what is wrong with a schedule, once for each version of it."""
        if self._complained.get(setting.key) != setting.rev:
            self._complained[setting.key] = setting.rev
            _log.error("%s", message)
