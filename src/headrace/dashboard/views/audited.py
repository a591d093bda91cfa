"""Who did what to a queue, a limit, a rate, a schedule or a worker: shown on its own page."""

from __future__ import annotations

from headrace.core.audit import KEPT, Audited
from headrace.dashboard.asking import Ask

__all__ = ["audit_of"]

SHOWN = 20


async def audit_of(ask: Ask, *keys: str) -> list[Audited]:
    """The newest acts on these settings."""
    acts = await ask.shared("audit", lambda: ask.app.audit(KEPT))
    return [one for one in acts if one.key in keys][:SHOWN]
