"""Leases of duties: which process may sweep, prune or plan, and for how long."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

__all__ = ["CLOCK_SLACK", "FREE", "HOLDER", "DutyLease", "given_back", "holder_of", "taken", "void_after"]

HOLDER = "holder:"
"""Prefix of the setting in which a holder that is not a worker says how its death can be proved; its id follows."""

CLOCK_SLACK = timedelta(seconds=2)
"""How far the clocks of two candidates for a duty may be apart."""


class DutyLease(msgspec.Struct, frozen=True):
    """A duty as the store keeps it."""

    token: int = 0
    """Grows whenever the duty changes its holder: a fence for what its holder writes."""
    holder: UUID | None = None
    until: datetime | None = None


FREE = DutyLease()
"""A duty that was never held."""


def taken(
    lease: DutyLease, holder: UUID, seconds: float, now: datetime, longest: float | None = None
) -> DutyLease | None:
    """Return the lease once ``holder`` has taken or renewed it for so long; None: another holds it.

    A lease that ends later than it can have been taken for is void: its writer had a wrong clock, or the clock was set
    back since. ``longest`` is what others take it for, if that is longer.
    """
    until = now + timedelta(seconds=seconds)
    if lease.holder == holder:
        return DutyLease(lease.token, holder, until)
    if lease.until is not None and now < lease.until <= void_after(seconds, now, longest):
        return None
    return DutyLease(lease.token + 1, holder, until)


def void_after(seconds: float, now: datetime, longest: float | None = None) -> datetime:
    """Return the latest end that a lease can have now."""
    return now + timedelta(seconds=max(seconds, longest or 0.0)) + CLOCK_SLACK


def given_back(lease: DutyLease, holder: UUID) -> DutyLease:
    """Return the lease once ``holder`` has given it back; another's stays as it is."""
    return DutyLease(lease.token) if lease.holder == holder else lease


def holder_of(lease: DutyLease, now: datetime) -> UUID | None:
    """Return the holder of the duty now; None: it is free."""
    return None if lease.until is None or lease.until <= now else lease.holder
