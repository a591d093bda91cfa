"""The roller: adds up what workers hand in, so that minutes become hours, and hours days."""

from __future__ import annotations

from headrace.engine.rollups import MAX_ROLL
from headrace.maintenance.elector import Duty

__all__ = ["Roller"]

_PAUSE = 60.0


class Roller(Duty):
    """Regroups once a minute; readers add up what is not regrouped yet."""

    name = "roller"
    share = 4.0  # it can wait

    def pause(self) -> float:
        """Seconds until the next round."""
        return _PAUSE * self._jitter()

    async def tick(self) -> int:
        """Regroup all that is there; how many rows."""
        total = 0
        while not self.stopping.is_set():
            taken = await self.engine.rollups.roll(self.host.clock.now())
            total += taken
            if taken < MAX_ROLL:
                break
        return total
