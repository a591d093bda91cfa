"""``app.rates``: rate limits, listed and set while workers run."""

from __future__ import annotations

import msgspec

from headrace.client.api.limit_settings import RATE, RuleNoun, checked_rate, undefined_rates
from headrace.core.limits.rate import Rate
from headrace.core.limits.settings import limits_of

__all__ = ["RatesApi"]


class RatesApi(RuleNoun):
    """The rates of the store; ``app.rate`` declares one in code. Tasks and queues name them in ``rates``."""

    _kind = "rate"

    async def list(self) -> dict[str, Rate]:
        """Every rate, by name, except those that only another version can read (``doctor`` names them)."""
        return dict(limits_of((one.key, one.value) for one in await self._engine.documents.settings(RATE)).rates)

    async def set(self, name: str, rate: Rate, *, by: str | None = None) -> None:
        """Make or change a rate limit while workers run."""
        await self._edit(name, msgspec.to_builtins(checked_rate(name, rate)), "set", by)

    async def undefined(self) -> dict[str, str]:
        """The rates that queues and tasks name and nothing defines, each with a sentence that says which do."""
        return await undefined_rates(self._engine)
