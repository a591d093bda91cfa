"""Copies of the state of a memory store: what is immutable is shared, so that a copy takes microseconds."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from headrace.core.job import Job
from headrace.engines.limits_cache import LimitsCache
from headrace.engines.memory.state import State

__all__ = ["Observed", "copied"]

_Copier = Callable[[Any, dict[int, Any]], Any]


class Observed(dict[UUID, Job]):
    """The records of a memory store; each write is noted until it is checked."""

    def __init__(self, records: dict[UUID, Job] | None = None) -> None:
        super().__init__(records or {})
        self.written: list[tuple[Job | None, Job]] = []

    def __setitem__(self, id: UUID, job: Job) -> None:
        self.written.append((self.get(id), job))
        super().__setitem__(id, job)


def copied(state: State) -> State:
    """Return a state that can be changed without changing this one."""
    return cast("State", _copy(state, {}))


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    copier = _COPIERS.get(type(value))
    if copier is None:
        copier = _COPIERS[type(value)] = _copier_of(type(value))
        if copier is _same:
            _SHARED.add(type(value))
    return value if copier is _same else copier(value, memo)


def _same(value: Any, memo: dict[int, Any]) -> Any:
    return value


def _copy_dict(value: dict[Any, Any], memo: dict[int, Any]) -> Any:
    if not value:
        return type(value)()
    return type(value)({key: one if type(one) in _SHARED else _copy(one, memo) for key, one in value.items()})


def _copy_records(value: Observed, memo: dict[int, Any]) -> Any:
    # The table and the relations share the records.
    found = memo.get(id(value))
    if found is None:
        found = memo[id(value)] = Observed(value)
    return found


def _copy_list(value: list[Any], memo: dict[int, Any]) -> Any:
    return [one if type(one) in _SHARED else _copy(one, memo) for one in value]


def _copy_deque(value: deque[Any], memo: dict[int, Any]) -> Any:
    return deque(value, value.maxlen)


def _copy_object(value: Any, memo: dict[int, Any]) -> Any:
    made = object.__new__(type(value))
    made.__dict__ = {name: one if type(one) in _SHARED else _copy(one, memo) for name, one in value.__dict__.items()}
    return made


def _copier_of(kind: type) -> _Copier:
    """Objects of the engine have attributes that change; every other value is immutable."""
    return _copy_object if kind.__module__.startswith("headrace.engines.memory") else _same


_SHARED: set[type] = set()
"""The types of immutable values that were seen."""
_COPIERS: dict[type, _Copier] = {
    dict: _copy_dict,
    Counter: _copy_dict,
    Observed: _copy_records,
    list: _copy_list,
    deque: _copy_deque,
    set: lambda value, memo: set(value),
    LimitsCache: _same,  # the settings do not change
}
