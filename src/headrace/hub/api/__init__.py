"""Operations about what exists in a store, a module per noun.

Begin with ``queues``, which is short, and ``submit``. ``vocabulary`` has the names in bodies, headrace's and EmProps'.
May import ``hub.server``, ``hub.auth`` and what ``hub`` may.
"""

from __future__ import annotations

from headrace.hub.api import batches, limits, queues, scale, schedules, stats, tasks, workers
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
    *scale.OPERATIONS,
)
