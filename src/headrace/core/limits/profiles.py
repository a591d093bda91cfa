"""Profiles: for how many pairs of task and requirements a store, and each customer, may have live jobs.

Each pair is a subqueue that every claim checks. Submits choose the names of tasks and requirements freely: without a
limit per customer, the names of one customer would leave no room for the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

import msgspec

from headrace.core.defaults import MAX_CUSTOMER_PROFILES, MAX_CUSTOMERS_PROFILES, MAX_PROFILES
from headrace.core.job import Spec
from headrace.core.stats.own_tasks import is_own
from headrace.core.validation import whole
from headrace.errors import TooManyProfiles

__all__ = ["OURS", "Pair", "allowed", "checked_profiles", "excess", "no_room", "refusal", "room_for", "staked_by"]


OURS = ""
"""In place of a customer: headrace itself."""

Pair = tuple[str, str]
"""A task and its requirements, as a text that is the same for the same requirements."""


def staked_by(spec: Spec) -> str | None:
    """Return the customer that the pair of a job counts for; None: the operator; ``OURS``: the job is headrace's own,
    or of a schedule. Ours are few, and never refused; headrace's own jobs require nothing."""
    if (is_own(spec.task) and not spec.requires) or spec.schedule is not None:
        return OURS
    return spec.customer


def room_for(whose: str | None) -> int | None:
    """Return how many pairs may have live jobs once this one has made a new one; None: any number.

    For the operator, only pairs without live jobs of customers count: so customers cannot take its room.
    """
    return MAX_PROFILES if whose is None else MAX_CUSTOMERS_PROFILES if whose != OURS else None


class _KeySaid(msgspec.Struct):
    customer: str | None = None
    profiles: int | None = None
    expires_at: datetime | None = None


class _Said(msgspec.Struct):
    key: _KeySaid


_said = msgspec.json.Decoder(_Said).decode


def allowed(customer: str, keys: Iterable[str], now: datetime) -> int:
    """Return for how many pairs a customer may have live jobs: the maximum of its stored keys that have not expired."""
    found = list[int]()
    for document in keys:
        try:
            key = _said(document).key
        except msgspec.MsgspecError:  # of another version
            continue
        is_over = key.expires_at is not None and key.expires_at <= now
        if key.customer == customer and key.profiles is not None and not is_over:
            found.append(key.profiles)
    return max(found, default=MAX_CUSTOMER_PROFILES)


def excess(has: Collection[Pair], wanted: Iterable[Pair], most: int) -> set[Pair]:
    """Return which of these pairs are too many for a customer that has some already: the first ones are accepted."""
    fresh = [pair for pair in dict.fromkeys(wanted) if pair not in has]
    return set(fresh[max(0, most - len(has)) :])


def checked_profiles(value: object) -> int | None:
    """Return the setting of a key; None: the default; :raises ConfigError: it is no number of pairs"""
    return None if value is None else whole(value, "profiles", 1, MAX_CUSTOMERS_PROFILES)


def refusal(customer: str, most: int) -> TooManyProfiles:
    """Return why a job of one more pair is refused to a customer."""
    return TooManyProfiles(
        f"the customer {customer!r} has live jobs of {most} different pairs of task and requirements, which is as many"
        " as it may have: use fewer different names and requirements, wait until some of these jobs have ended, or let"
        " the operator make a key with more (profiles)"
    )


def no_room(whose: str | None) -> TooManyProfiles:
    """Return why a job of one more pair is refused where the store has no room for it."""
    most = MAX_PROFILES if whose is None else MAX_CUSTOMERS_PROFILES
    return TooManyProfiles(
        f"{most} pairs of task and requirements have live jobs, which is as many as a store keeps apart: require fewer"
        " different things"
    )
