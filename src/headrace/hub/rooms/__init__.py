"""Operations about all that is not one job: queues, limits, rates, tasks, schedules, batches, workers, figures."""

from __future__ import annotations

from headrace.hub.operation import Operation
from headrace.hub.rooms import batches, figures, limits, queues, schedules, tasks, workers

__all__ = ["OPERATIONS"]

OPERATIONS: tuple[Operation, ...] = (
    *queues.OPERATIONS,
    *limits.OPERATIONS,
    *tasks.OPERATIONS,
    *schedules.OPERATIONS,
    *batches.OPERATIONS,
    *workers.OPERATIONS,
    *figures.OPERATIONS,
)
