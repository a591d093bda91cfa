"""The filters by which jobs are found, and how they are checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypedDict, TypeVar, cast
from uuid import UUID

from headrace.core.defaults import MAX_FILTER_VALUES
from headrace.core.job import as_id
from headrace.core.query import Filter
from headrace.core.status import Reason, Status
from headrace.core.validation import plain, plain_moment
from headrace.errors import ConfigError, shown

__all__ = ["UNSETTLED", "Filters", "checked_limit", "filter_of"]

T = TypeVar("T")


UNSETTLED = frozenset(Status) - {Status.COMPLETED, Status.CANCELLED}
"""The statuses of jobs with errors that may need attention."""


class Filters(TypedDict, total=False):
    """What jobs are found by. Every given field must match; a field of several values, if one of them does."""

    status: Status | str | Sequence[Status | str] | None
    reason: Reason | str | Sequence[Reason | str] | None
    task: str | Sequence[str] | None
    queue: str | Sequence[str] | None
    customer: str | Sequence[str] | None
    worker: UUID | str | Sequence[UUID | str] | None
    fingerprint: str | Sequence[str] | None
    tag: str | None
    text: str | None
    schedule: str | None
    parent: UUID | str | None
    root: UUID | str | None
    batch: UUID | str | None
    rerun_of: UUID | str | None
    suspect: bool
    created_after: datetime | None
    created_before: datetime | None
    finished_after: datetime | None
    finished_before: datetime | None


def checked_limit(limit: int) -> int:
    """How many a page may have; :raises ConfigError:"""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
        raise ConfigError(f"limit must be from 1 to 1000, not {shown(limit)}")
    return limit


def filter_of(given: Filters) -> Filter:
    """The filter as the store takes it.

    :raises ConfigError: a value is none that a job could have
    :raises TypeError: a filter is not known
    """
    fields: dict[str, Any] = {}
    for name, value in cast(dict[str, Any], given).items():
        check = _CHECKS.get(name)
        if check is None:
            raise TypeError(f"there is no filter {name!r}: they are {', '.join(_CHECKS)}")
        if value is not None and not (name == "status" and not value):
            fields[name] = check(name, value)
    found = Filter(**fields)
    for kind in ("created", "finished"):
        after, before = fields.get(f"{kind}_after"), fields.get(f"{kind}_before")
        if after is not None and before is not None and before <= after:
            raise ConfigError(f"{kind}_before must be later than {kind}_after: nothing is between {after} and {before}")
    return found


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be text, not {shown(value)}")
    return plain(value)


def _search_text(name: str, value: Any) -> str:
    if not _text(name, value):
        raise ConfigError(f"{name} is empty, and would match every job: leave it out for that")
    return plain(value)


def _id(name: str, value: Any) -> UUID:
    if not isinstance(value, str | UUID):
        raise ConfigError(f"{name} must be an id, not {shown(value)}")
    return as_id(value)


def _moment(name: str, value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise ConfigError(f"{name} must be a datetime, not {shown(value)}")
    if value.utcoffset() is None:
        raise ConfigError(
            f"{name} must say its offset, as datetime.now(UTC) does: {value.isoformat()} may be any zone's"
        )
    try:
        return plain_moment(value)
    except OverflowError:
        raise ConfigError(f"{name} is out of range: {value.isoformat()}") from None


def _several(check: Callable[[str, Any], T]) -> Callable[[str, Any], frozenset[T]]:
    """A check of one value or several."""

    def checked(name: str, value: Any) -> frozenset[T]:
        if isinstance(value, str | UUID | Mapping) or not isinstance(value, Collection):
            return frozenset({check(name, value)})
        if not 1 <= len(value) <= MAX_FILTER_VALUES:
            raise ConfigError(f"{name}: name 1 to {MAX_FILTER_VALUES} values, or leave it out; there are {len(value)}")
        return frozenset(check(name, one) for one in value)

    return checked


def _word(kind: type[StrEnum], words: str) -> Callable[[str, Any], Any]:
    """A check of words of the lifecycle."""

    def checked(name: str, value: Any) -> Any:
        try:
            # The error of the kind would spell out whatever else it is given, however deep.
            return kind(plain(value) if isinstance(value, str) else "")
        except ValueError:
            raise ConfigError(f"{shown(value)} is no {name}: {words} are {', '.join(kind)}") from None

    return checked


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "status": _several(_word(Status, "statuses")),
    "reason": _several(_word(Reason, "reasons")),
    **dict.fromkeys(("task", "queue", "customer"), _several(_text)),
    "worker": _several(_id),
    "fingerprint": _several(_text),
    **dict.fromkeys(("tag", "schedule"), _text),
    "text": _search_text,
    **dict.fromkeys(("parent", "root", "batch", "rerun_of"), _id),
    "suspect": lambda name, value: bool(value),
    **dict.fromkeys(("created_after", "created_before", "finished_after", "finished_before"), _moment),
}
