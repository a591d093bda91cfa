"""Fit: which of several workers that may all take a job is to have it: the one that wastes least by it.

A worker that was the last to fail the job comes after all others; of those that waste the same, the least loaded one
comes first.

It never decides which worker may take a job, nor the order of jobs: it only says which of the claims that wait at the
same place is tried first, and for how long the others are held back.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headrace.core.matching.match import is_number
from headrace.core.validation import is_within

__all__ = ["MAX_HOLD_SECONDS", "Loaded", "Rank", "Waste", "held_back", "loaded_by", "ranked", "waste"]

MAX_HOLD_SECONDS = 2.0
"""Maximum seconds for which a claim is held back: after that it is served like all others."""

_ALL = "all"
_UNLISTED_WORDS = 1000
"""How many words "all" counts for: more than any worker lists."""
_MODELS = ("components", "models")
"""Where jobs name what a worker may have loaded."""

Waste = tuple[int, float, int]
"""What a worker wastes on a job, smaller is better: whether it must load something, hardware beyond the need, words
that it lists and the job does not require."""

Rank = tuple[bool, Waste, float]
"""The order in which claims go for a job, smaller first: whether the worker was the last to fail one like it, what the
worker wastes on it, and its load."""

Loaded = tuple[Any, ...]
"""What a worker has loaded, as far as its last job shows: what that required by name."""


def loaded_by(requires: Mapping[str, Any]) -> Loaded | None:
    """Return what a worker has loaded after a job with these requirements; None: unknown."""
    named = tuple((name, _frozen(requires[name])) for name in _MODELS if name in requires)
    return named or None


def waste(requires: Mapping[str, Any], offers: Mapping[str, Any], loaded: Loaded | None = None) -> Waste:
    """Return what a worker with this offer, which meets the requirements, wastes on such a job."""
    needed = loaded_by(requires)
    spare, words = _unused(requires, offers)
    return int(needed is not None and needed != loaded), round(spare, 9), words


def _unused(need: Any, offer: Any) -> tuple[float, int]:
    """Return the hardware beyond the need, each number from 0 to 1, and the words that are not required."""
    if isinstance(offer, Mapping):
        parts = [_unused(_within(need, name), one) for name, one in offer.items()]
        return sum(spare for spare, _ in parts), sum(words for _, words in parts)
    if is_number(offer):
        if not is_within(offer) or not is_within(least := _least(need)):
            return 1.0, 0  # from before numbers were bounded: nothing is wasted more
        beyond = max(0.0, offer - least) / max(1.0, abs(least))
        return (beyond / (1 + beyond) if math.isfinite(beyond) else 1.0), 0
    if isinstance(offer, str | list | tuple):
        listed = {offer} if isinstance(offer, str) else {one for one in offer if isinstance(one, str)}
        unasked = len(listed - _words(need) - {_ALL})
        return 0.0, unasked + _UNLISTED_WORDS * (_ALL in listed)
    return 0.0, 0


def _within(need: Any, name: str) -> Any:
    match need:
        case {"in": [dict(only)]}:  # requirements are in this form beside what a worker must not have
            return only.get(name)
        case dict():
            return need.get(name)
    return None


def _least(need: Any) -> float:
    """Return the minimum number that a requirement sets."""
    if isinstance(need, Mapping):
        need = need.get("min", 0)
    return need if is_number(need) else 0.0


def _words(need: Any) -> set[str]:
    """Return the words that a requirement names."""
    if isinstance(need, str):
        return {need}
    if isinstance(need, Mapping):
        return _words(need.get("in"))
    if isinstance(need, list | tuple):
        return {word for one in need for word in _words(one)}
    return set()


def _frozen(need: Any) -> Any:
    if isinstance(need, Mapping):
        return tuple(sorted((name, _frozen(one)) for name, one in need.items()))
    return tuple(map(_frozen, need)) if isinstance(need, list | tuple) else need


def ranked(wastes: Mapping[int, Waste], failed: Collection[int], load: float) -> dict[int, Rank]:
    """Return the ranks of a claim, by the number of a profile; ``failed``: the profiles of due jobs that its worker was
    the last to fail."""
    return {one: (one in failed, own, load) for one, own in wastes.items()}


def held_back(mine: Mapping[int, Rank], others: Iterable[Mapping[int, Rank]], waited: float) -> frozenset[int]:
    """Return the profiles that a waiting claim could be given and leaves to others for now.

    ``mine`` and ``others``: the rank of each for its jobs, by the number of a profile. ``others``: the claims that wait
    beside it and were not tried yet. ``waited``: for how many seconds it has been held back so far.
    """
    if waited >= MAX_HOLD_SECONDS:
        return frozenset()
    rest = list(others)
    return frozenset(one for one, own in mine.items() if any(one in other and other[one] < own for other in rest))
