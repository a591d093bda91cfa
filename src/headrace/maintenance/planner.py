"""The planner: submits one job for each fire of each schedule."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from headrace.bus import Hint, Topic
from headrace.core.rules import Retention
from headrace.core.schedule import CATCH_UP_CAP, SKIP_GRACE, ScheduleDoc, due_fires, latest_fires
from headrace.engine import Engine, Inserted, Setting
from headrace.errors import ConfigError, Overloaded, Unavailable
from headrace.host import Host
from headrace.maintenance.elector import Duty
from headrace.maintenance.schedules import PREFIX, fire, read
from headrace.runtime.lanes import Lanes

__all__ = ["Planner"]

_log = logging.getLogger("headrace.planner")

_LONGEST_PAUSE = 15.0


class Planner(Duty):
    """Makes each fire's job under the id derived from the fire, then moves the cursor; two at once make it once."""

    name = "planner"

    def __init__(
        self,
        engine: Engine,
        lanes: Lanes,
        host: Host,
        holder: UUID,
        retention: Retention | None = None,
        *,
        cap: int = CATCH_UP_CAP,
    ) -> None:
        super().__init__(engine, lanes, host, holder)
        kept = retention or engine.rules.retention
        # Further back, the fire's job may have been made and pruned, and its id would not be met again.
        self.horizon = timedelta(seconds=max(SKIP_GRACE, min(kept.completed, kept.failed, kept.cancelled)))
        self.next_due: datetime | None = None
        """When the next fire is due, as of the last tick."""
        self._cap = cap
        self._complained: dict[str, int] = {}

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
        longest = min(_LONGEST_PAUSE, self.rules.lease / 2)
        if self.next_due is None:
            return longest
        return min(longest, max(0.0, (self.next_due - self.host.clock.now()).total_seconds()))

    async def tick(self) -> int:
        """Make the jobs of every fire that is due; how many were submitted."""
        total, upcoming = 0, list[datetime]()
        for setting in await self.engine.settings(PREFIX):
            doc = self._readable(setting)
            if doc is None or not doc.active:
                continue
            try:
                made, doc = await self._fire(setting, doc)
            except (Unavailable, Overloaded):
                raise
            except Exception as error:
                # One schedule that cannot be served must not stop the others; it is tried again next time.
                self._complain(setting, f"schedule {doc.name!r} could not submit its job: {error!r}")
                continue
            total += made
            if doc.next_fire is not None:
                upcoming.append(doc.next_fire)
        self.next_due = min(upcoming, default=None)
        return total

    async def _fire(self, setting: Setting, doc: ScheduleDoc) -> tuple[int, ScheduleDoc]:
        now = self.host.clock.now()
        newest = latest_fires(doc.rule, doc.cursor, now, doc.anchor, 1)
        if not newest:
            return 0, doc
        due = due_fires(doc.rule, doc.cursor, now, doc.anchor, self.horizon, self._cap)
        answers = await self.lanes.insert_many([fire(doc, at, now) for at in due])
        made = sum(isinstance(answer, Inserted) for answer in answers)
        if len(answers) > made:
            _log.info("schedule %s: a job of an earlier fire is still live and holds the dedup key", doc.name)
        # Only after the jobs are durable: whoever dies in between makes the same jobs again, under the same ids.
        moved = replace(doc, cursor=newest[0], last_fire=due[-1] if made else doc.last_fire)
        if await self.engine.put_setting(setting.key, moved.to_text(), setting.rev) is None:
            # Another planner was here, or somebody changed the schedule: look again at what it is now.
            self.nudge()
        return made, moved

    def _readable(self, setting: Setting) -> ScheduleDoc | None:
        try:
            return read(setting)
        except ConfigError as error:
            self._complain(setting, str(error))
            return None

    def _complain(self, setting: Setting, message: str) -> None:
        """Once for each version of a schedule, not in every round."""
        if self._complained.get(setting.key) != setting.rev:
            self._complained[setting.key] = setting.rev
            _log.error("%s", message)
