"""Matching: whether what a worker offers meets what a job requires.

Both are JSON objects by name. A requirement is one of these:

- a number: a number is offered that is at least as great;
- a text, true, false or null: the same is offered; what is not offered counts as null;
- a list: each of its elements is met by what is offered;
- an object with any of ``min``, ``max``, ``in`` and ``not``: each test is passed. ``min`` and ``max`` take a number and
  need one; ``in`` takes a list, one of which must be met; ``not`` takes a requirement that must not be met;
- any other object: an object is offered, and each of the names in it is met by what that has under the same name.

What is offered as a list meets a number, a text, true or false if one of its elements does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from headrace.core.defaults import MAX_NUMBER
from headrace.core.stats.own_tasks import is_own
from headrace.core.validation import is_within
from headrace.errors import shown

__all__ = ["TESTS", "Profile", "by_service", "fault_of", "fault_of_numbers", "fits", "is_number", "meets", "serves"]

SERVICES = "services"
"""The requirement of a job for a service, in the words of the EmProps page."""
TESTS = frozenset({"min", "max", "in", "not"})
"""The names that make an object a test."""

_MANY = (list, tuple, set, frozenset)
_MAX_DEPTH = 32
"""No worker meets what is nested deeper than this."""


class Profile(msgspec.Struct, frozen=True):
    """An interned pair of task and requirements; jobs of one profile are alike to every worker."""

    id: int
    task: str
    requires: dict[str, Any] = {}


class _TooDeep(Exception):
    """A requirement is nested too deep to be checked."""


def is_number(value: Any) -> bool:
    """Return whether it is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fits(need: Any, offer: Any, depth: int = 0) -> bool:
    if depth > _MAX_DEPTH:
        raise _TooDeep
    if isinstance(need, Mapping):
        if not TESTS.isdisjoint(need):
            return all(_passes(test, value, offer, depth + 1) for test, value in need.items())
        if isinstance(offer, Mapping):
            return all(_fits(one, offer.get(name), depth + 1) for name, one in need.items())
        return not need or (isinstance(offer, _MANY) and any(_fits(need, one, depth + 1) for one in offer))
    if isinstance(need, _MANY):
        return all(_fits(one, offer, depth + 1) for one in need)
    if isinstance(offer, _MANY):
        return any(_fits(need, one, depth + 1) for one in offer)
    return bool(need == offer) or (is_number(need) and is_number(offer) and offer > need)


def _passes(test: str, value: Any, offer: Any, depth: int) -> bool:
    match test:
        case "min":
            return is_number(offer) and is_number(value) and bool(offer >= value)
        case "max":
            return is_number(offer) and is_number(value) and bool(offer <= value)
        case "in":
            return isinstance(value, _MANY) and any(_fits(one, offer, depth) for one in value)
        case "not":
            return not _fits(value, offer, depth)
        case _:  # an unknown test, like a bound that is no number, is not met rather than ignored
            return False


def fits(need: Any, offer: Any) -> bool:
    """Return whether one requirement is met by the offer under its name; None: there is none."""
    try:
        return _fits(need, offer)
    except _TooDeep:
        return False


def meets(requires: Mapping[str, Any], offers: Mapping[str, Any]) -> bool:
    """Return whether the offer meets every requirement."""
    return all(fits(need, offers.get(name)) for name, need in requires.items())


def serves(profile: Profile, tasks: frozenset[str], offers: Mapping[str, Any]) -> bool:
    """Return whether a worker with these tasks and offers may be given jobs of this profile."""
    return profile.task in tasks and meets(profile.requires, offers)


def by_service(task: str, requires: Mapping[str, Any]) -> bool:
    """Return whether jobs like this go to workers without tasks: they require a service, and are not headrace's own."""
    return SERVICES in requires and not is_own(task)


def fault_of(requires: Mapping[str, Any]) -> str | None:
    """Return what is wrong with requirements that no worker could ever meet as written; None: nothing."""
    try:
        fault = next((fault for name, need in requires.items() for fault in _faults(name, need)), None)
    except _TooDeep:
        return f"nobody looks deeper than {_MAX_DEPTH} levels"
    return fault or fault_of_numbers(requires)


def fault_of_numbers(document: Mapping[str, Any]) -> str | None:
    """Return which number in requirements, or in an offer, is out of bounds; None: none is."""
    # Not by recursion: an offer may be as deep as JSON may be.
    rest: list[tuple[str, Any]] = list(document.items())[::-1]
    while rest:
        place, value = rest.pop()
        if isinstance(value, Mapping):
            rest += [(f"{place}.{name}", one) for name, one in list(value.items())[::-1]]
        elif isinstance(value, _MANY):
            rest += [(place, one) for one in value]
        elif is_number(value) and not is_within(value):
            return f"{place} must be a finite number, whole ones from -{MAX_NUMBER} to {MAX_NUMBER}, not {shown(value)}"
    return None


def _faults(place: str, need: Any, depth: int = 0) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        raise _TooDeep
    if isinstance(need, _MANY):
        for one in need:
            yield from _faults(place, one, depth + 1)
    if not isinstance(need, Mapping):
        return
    if not TESTS.isdisjoint(need):
        yield from _faults_of_tests(place, need, depth)
        return
    for name, one in need.items():
        yield from _faults(f"{place}.{name}", one, depth + 1)


def _faults_of_tests(place: str, need: Mapping[str, Any], depth: int) -> Iterator[str]:
    for name, value in need.items():
        if name in ("min", "max"):
            if not is_number(value):
                yield f"{place}: {name!r} takes a number, not {shown(value):.80}"
        elif name == "in":
            if not isinstance(value, _MANY) or not value:
                yield f"{place}: 'in' takes a list of what will do, not {shown(value):.80}"
            else:
                yield from _faults(place, value, depth + 1)
        elif name == "not":
            yield from _faults(place, value, depth + 1)
        else:
            yield f"{place}: {name!r} is no test, and stands among tests ({', '.join(sorted(TESTS))})"
    if {"min", "max"} <= need.keys() and all(map(is_number, (need["min"], need["max"]))) and need["min"] > need["max"]:
        yield f"{place}: no number is at least {shown(need['min'])} and at most {shown(need['max'])}"
