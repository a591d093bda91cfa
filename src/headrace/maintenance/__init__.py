"""What keeps a store in order: sweeping, pruning and planning, done by the worker that holds the duty.

Begin with ``duty`` and ``sweeper``. May import ``runtime`` and below, never ``engines``.
"""

from __future__ import annotations

from uuid import UUID

from headrace.core.defaults import Retention
from headrace.engine import Engine
from headrace.maintenance.attendance import Attendance
from headrace.maintenance.continuous import Follower
from headrace.maintenance.duty import Duty
from headrace.maintenance.planner import Planner
from headrace.maintenance.pruner import Pruner
from headrace.maintenance.sweeper import Sweeper
from headrace.runtime.host import Host
from headrace.runtime.service import Service
from headrace.runtime.totals import FinishTotals
from headrace.runtime.writes.writer import Writer

__all__ = ["Attendance", "Follower", "Planner", "Pruner", "Sweeper", "services"]


def services(
    engine: Engine,
    writer: Writer,
    host: Host,
    holder: UUID,
    retention: Retention | None = None,
    *,
    follow: bool = True,
    ended: UUID | None = None,
    sums: FinishTotals | None = None,
    worker: bool = True,
) -> list[Service]:
    """The duties, to be run beside a worker; ``retention`` defaults to that of the engine's rules.

    Without ``follow`` a continuous task is left to the planner between two runs, as a worker needs that wants to end.
    ``ended``: a worker that is known to have ended, by its process. ``sums``: where lost attempts are added up.
    ``worker``: whether the holder is one, so that others can see when it has died.
    """
    sweeper = Sweeper(engine, writer, host, holder, ended=ended, sums=sums)
    means = engine, writer, host, holder
    others: list[Duty] = [Pruner(*means, retention, sums=sums), Planner(*means, retention)]
    sweeper.siblings = others
    if not worker:
        for duty in (sweeper, *others):
            duty.briefly()
    return [sweeper, *others, *([Follower(engine, writer, host)] if follow else [])]
