"""Matching: whether what a worker offers meets what a job requires."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["Profile", "meets", "mismatch", "serves"]


_MANY = (list, tuple, set, frozenset)


class Profile(msgspec.Struct, frozen=True):
    """An interned pair of task and requirements; jobs of one profile are alike to every worker."""

    id: int
    task: str
    requires: dict[str, Any] = {}


def _fits(need: Any, offer: Any) -> bool:
    if isinstance(need, Mapping):
        return all(_passes(test, value, offer) for test, value in need.items())
    if isinstance(offer, _MANY):
        return any(need == one for one in offer)
    return bool(need == offer)


def _passes(test: str, value: Any, offer: Any) -> bool:
    match test:
        case "min":
            return isinstance(offer, int | float) and isinstance(value, int | float) and offer >= value
        case "max":
            return isinstance(offer, int | float) and isinstance(value, int | float) and offer <= value
        case "in":
            return isinstance(value, _MANY) and any(_fits(one, offer) for one in value)
        case "not":
            return not _fits(value, offer)
        case _:  # a test this version does not know, like a bound that is no number, is not met rather than ignored
            return False


def mismatch(requires: Mapping[str, Any], offers: Mapping[str, Any]) -> str | None:
    """The first requirement the offer does not meet, or None if it meets all.

    A requirement is a value (equal to, or contained in, what is offered), or an object of ``min``, ``max``, ``in``
    and ``not``.
    """
    for name, need in requires.items():
        if not _fits(need, offers.get(name)):
            return name
    return None


def meets(requires: Mapping[str, Any], offers: Mapping[str, Any]) -> bool:
    """Whether the offer meets every requirement."""
    return mismatch(requires, offers) is None


def serves(profile: Profile, tasks: frozenset[str], offers: Mapping[str, Any]) -> bool:
    """Whether a worker with these tasks and offers may be given jobs of this profile."""
    return profile.task in tasks and meets(profile.requires, offers)
