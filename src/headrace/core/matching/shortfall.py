"""What a worker lacks for a job: every requirement that it does not meet, how far it is from it, and both in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headrace.core.matching.match import TESTS, fits, is_number
from headrace.core.validation import is_within

__all__ = ["Lack", "distance", "lacks", "told_lacks", "told_need", "told_offer"]

_MAX_VALUE_CHARACTERS = 80
"""Maximum characters of a value in a text."""


class Lack(msgspec.Struct, frozen=True):
    """One requirement that is not met."""

    name: str
    """Its path, such as ``hardware.gpu_memory_gb``."""
    need: Any
    offer: Any = None
    """What the worker offers there; None: nothing."""


def lacks(requires: Mapping[str, Any], offers: Mapping[str, Any]) -> tuple[Lack, ...]:
    """Return every requirement that the offer does not meet; none if ``core.matching.match.meets`` is true."""
    return tuple(one for name, need in requires.items() for one in _lacking(name, need, offers.get(name)))


def _lacking(name: str, need: Any, offer: Any) -> Iterator[Lack]:
    if fits(need, offer):
        return
    parts: Iterable[Lack] = ()
    if isinstance(need, Mapping) and len(need) > 1 and TESTS.issuperset(need):
        parts = [lack for test, value in need.items() for lack in _lacking(name, {test: value}, offer)]
    elif isinstance(need, Mapping) and need.keys() == {"in"} and isinstance(need["in"], list) and len(need["in"]) == 1:
        parts = [*_lacking(name, need["in"][0], offer)]
    elif isinstance(need, Mapping) and TESTS.isdisjoint(need) and (offer is None or isinstance(offer, Mapping)):
        has = offer or {}
        parts = [lack for key, one in need.items() for lack in _lacking(f"{name}.{key}", one, has.get(key))]
    elif isinstance(need, list | tuple):
        parts = [lack for one in need for lack in _lacking(name, one, offer)]
    yield from parts or (Lack(name, need, offer),)


def distance(found: Sequence[Lack]) -> tuple[int, float]:
    """Return how far a worker is from a job, smaller is nearer: how many requirements it lacks, then by how much."""
    return len(found), sum(map(_gap, found))


def _gap(lack: Lack) -> float:
    """Return the missing share of a number, from 0 to 1; 1 for all that cannot be measured."""
    need, offer = lack.need, lack.offer
    sign = 1
    if isinstance(need, Mapping):
        sign = -1 if "max" in need else 1
        need = need.get("min", need.get("max"))
    if not is_number(need) or not is_number(offer):
        return 1.0
    if not is_within(need) or not is_within(offer):
        return 1.0  # from before numbers were bounded
    missing = sign * (need - offer) / (abs(need) or 1)
    if missing <= 0:
        return 0.0
    return missing / (1 + missing) if math.isfinite(missing) else 1.0


def told_lacks(found: Sequence[Lack], *, discreet: bool = False) -> tuple[str, str]:
    """Return what is needed, and what is offered of it, in words for "It needs …; the worker offers …".

    ``discreet``: for a reader who must not learn the names that others gave: only numbers are shown.
    """
    needs = _joined([f"{one.name} {told_need(one.need)}" for one in found])
    offered = [told_offer(one.offer, discreet=discreet) for one in found]
    if len(found) == 1:
        return needs, offered[0]
    return needs, _joined([f"{one.name} {offer}" for one, offer in zip(found, offered, strict=True)])


def told_need(need: Any) -> str:
    """Return a requirement in words that follow its name, such as "≥ 24"."""
    if isinstance(need, Mapping) and len(need) == 1 and TESTS.issuperset(need):
        [(test, value)] = need.items()
        match test:
            case "min":
                return f"≥ {_value(value)}"
            case "max":
                return f"≤ {_value(value)}"
            case "in" if isinstance(value, list | tuple):
                return _told_choice(value)
            case "not":
                return _told_not(value)
    if is_number(need):
        return f"≥ {_value(need)}"
    if isinstance(need, Mapping) and need and TESTS.isdisjoint(need):
        return _joined([f"{name} {told_need(one)}" for name, one in need.items()])
    return f"= {_value(need)}"


def _told_choice(values: Sequence[Any]) -> str:
    # Where one word is required, "all" and nothing are alternatives for workers that are not bound by it.
    asked = [one for one in values if one is not None and one != "all"] or list(values)
    words = [told_need(one) for one in asked]
    if all(word.startswith("= ") for word in words):
        return "= " + " or ".join(word[2:] for word in words)
    return " or ".join(words)


def _told_not(value: Any) -> str:
    if is_number(value):
        return f"< {_value(value)}"
    told = told_need(value)
    return f"≠ {told[2:]}" if told.startswith("= ") and " or " not in told else f"not {told}"


def told_offer(offer: Any, *, discreet: bool = False) -> str:
    """Return what is offered, in words that follow "offers"."""
    if offer is None:
        return "none"
    if discreet and not is_number(offer):
        return "something else"
    if isinstance(offer, list | tuple):
        return _cut(", ".join(map(_value, offer))) or "none"
    return _value(offer)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _cut(repr(value))
    if value is None:
        return "none"
    return _cut(msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[: _MAX_VALUE_CHARACTERS - 2]} …"


def _joined(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
