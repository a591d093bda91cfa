"""The parts of an explanation: facts, and the words for numbers and moments in them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Self

import msgspec

from headrace.core.attempt import ErrorInfo
from headrace.core.codec.record import Record
from headrace.core.times import length

__all__ = ["Explanation", "Fact", "ago", "many", "per_time", "roughly", "span", "told"]


class Fact(msgspec.Struct, Record, frozen=True):
    """One fact: a word for programs, a sentence for people, and what it is about."""

    code: str
    text: str
    data: dict[str, Any] = {}


class Explanation(str):  # noqa: SLOT000  # what varies in size has no slots
    """Why a job is in its status: one paragraph, and the facts in it."""

    facts: tuple[Fact, ...]

    def __new__(cls, facts: Sequence[Fact]) -> Self:
        """Make an explanation of these facts."""
        made = super().__new__(cls, " ".join(fact.text for fact in facts))
        made.facts = tuple(facts)
        return made

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return handler(str)

    @property
    def codes(self) -> tuple[str, ...]:
        """The words of the facts."""
        return tuple(fact.code for fact in self.facts)


def told(error: ErrorInfo) -> str:
    """Return an error in one line."""
    first = error.message.strip().splitlines()[:1]
    return f"{error.type}: {first[0][:200]}" if first else error.type


def many(n: int, noun: str) -> str:
    """Return a number with its noun, in the plural if needed."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def span(at: datetime, now: datetime) -> str:
    """Return a moment in words, relative to now."""
    return f"in {length((at - now).total_seconds())}" if at > now else ago(now - at)


def ago(passed: timedelta) -> str:
    """Return how long ago something was, in words."""
    return f"{length(passed.total_seconds())} ago" if passed >= timedelta(seconds=1) else "just now"


def roughly(seconds: float) -> str:
    """Return an estimated duration in words, rounded as far as an estimate is exact."""
    if seconds < 15:
        return length(max(1.0, seconds))
    return length(round(seconds / 5) * 5)


def per_time(per_second: float) -> str:
    """Return a rate in words, in the unit that makes it a number above one."""
    for size, unit in ((1.0, "second"), (60.0, "minute")):
        if per_second * size >= 1:
            return f"{_jobs(per_second * size)} a {unit}"
    return f"{_jobs(per_second * 3600)} an hour"


def _jobs(n: float) -> str:
    return f"{n:.1f} jobs" if n < 10 and round(n, 1) % 1 else many(round(n), "job")
