"""Who did what to a queue, a limit, a rate, a schedule or a worker: shown on its own page."""

from __future__ import annotations

from headrace.core.audit import KEPT, Audited
from headrace.core.job import Job
from headrace.dashboard.asking import Ask

__all__ = ["audit_of", "audit_of_job"]

SHOWN = 20


async def audit_of_job(ask: Ask, job: Job) -> list[Audited]:
    """That it was submitted by hand, and by whom, if it was; its other acts are in its history."""
    acts, key = await ask.shared("audit", lambda: ask.app.audit(KEPT)), f"task:{job.task}"
    return [one for one in acts if one.key == key and (one.details or {}).get("job") == str(job.id)]


async def audit_of(ask: Ask, *keys: str) -> list[Audited]:
    """The newest acts on these settings."""
    acts = await ask.shared("audit", lambda: ask.app.audit(KEPT))
    return [one for one in acts if one.key in keys][:SHOWN]
