"""What the sweeper does with one job that is held or expiring, decided from its record and its worker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from headrace.core.change import Change
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.actions import expire
from headrace.core.lifecycle.clock_steps import ClockStep, extended
from headrace.core.lifecycle.decision import expired, signed_at, soonest
from headrace.core.lifecycle.loss import lose
from headrace.core.lifecycle.transitions import TRANSITIONS
from headrace.core.status import Cause, Status, Verb

__all__ = ["cause_of", "sweep"]

_UNNAMED = 2

_DEADLINE = {Status.ASSIGNED: Cause.ACCEPT_BY, Status.ACCEPTED: Cause.START_BY, Status.RUNNING: Cause.TIMEOUT}


def cause_of(
    job: Job, now: datetime, rules: Rules, *, alive: bool, unnamed: int = 0, steps: Sequence[ClockStep] = ()
) -> Cause | None:
    """Return why a held job must be taken from its worker now, or None if it may keep it.

    ``steps``: those of the store's time. What was counted from before a step is judged without it.
    """
    if not job.held:
        return None
    if not alive:
        return Cause.LEASE
    if unnamed >= _UNNAMED:
        return Cause.BEAT
    if job.act_by is None or job.act_by > now:
        return None
    patience = soonest(job, None, rules)
    if patience is not None and extended(patience, job.cancel_requested_at, steps) <= now:
        return Cause.CANCEL
    if patience is not None and patience <= job.act_by:
        return None  # its own deadline is later still
    began = signed_at(job, rules) if job.status is Status.RUNNING else job.assigned_at
    return _DEADLINE[job.status] if extended(job.act_by, began, steps) <= now else None


def sweep(
    job: Job,
    now: datetime,
    chance: float,
    rules: Rules,
    *,
    alive: bool,
    unnamed: int = 0,
    heard_at: datetime | None = None,
    beside_suspect: bool = False,
    mass_death: bool = False,
    steps: Sequence[ClockStep] = (),
) -> Change | None:
    """Return the change that the sweeper must write for this job, if any.

    ``heard_at``: the last beat of its worker; ``beside_suspect``, ``mass_death``: as for ``lose``; ``steps``: as for
    ``cause_of``.
    """
    if job.status in TRANSITIONS[Verb.EXPIRE]:
        return expire(job, now) if expired(job, now) else None
    cause = cause_of(job, now, rules, alive=alive, unnamed=unnamed, steps=steps)
    if cause is None:
        return None
    return lose(job, cause, now, chance, rules, heard_at=heard_at, beside_suspect=beside_suspect, mass_death=mass_death)
