"""Operations about all that is not one job: queues, limits, rates, tasks, schedules, batches, workers, figures."""

from __future__ import annotations

from headrace.hub.api import batches, limits, queues, schedules, stats, tasks, workers
from headrace.hub.server.operation import Operation

__all__ = ["OPERATIONS"]

OPERATIONS: tuple[Operation, ...] = (
    *queues.OPERATIONS,
    *limits.OPERATIONS,
    *tasks.OPERATIONS,
    *schedules.OPERATIONS,
    *batches.OPERATIONS,
    *workers.OPERATIONS,
    *stats.OPERATIONS,
)
