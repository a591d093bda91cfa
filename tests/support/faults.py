"""Engines with faults: a verb that does something else, replies that get lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from headrace.engine import Engine
from headrace.errors import Unavailable

ROLES = frozenset({"jobs", "records", "entries", "families", "rollups", "workers", "documents", "transactions"})


class Instead:
    """A role, or an engine, with something else in place of what is named."""

    def __init__(self, real: Any, **others: Any) -> None:
        self._real, self._others = real, others

    def __getattr__(self, name: str) -> Any:
        if name == "insert_one" and "insert" in self._others:
            raise AttributeError(name)  # the short way would lead past what is in place of the other
        return self._others[name] if name in self._others else getattr(self._real, name)


class LosesReplies:
    """Passes every verb on; drops the reply of every n-th call of the verbs named: the write happened, and the caller
    is told that nobody knows. A verb that a subclass has as a method of its own takes the place of the role's."""

    def __init__(self, engine: Engine, every: Mapping[str, int]) -> None:
        self._engine, self._every = engine, every
        self.calls: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        if name not in ROLES:
            return found
        losing = {verb: self._losing(getattr(found, verb)) for verb in self._every if hasattr(found, verb)}
        own = {verb: getattr(self, verb) for verb in dir(type(self)) if verb[0] != "_" and hasattr(found, verb)}
        return Instead(found, **losing | own)

    def _losing(self, verb: Any) -> Any:
        name = verb.__name__
        every = self._every[name]

        async def call(*args: Any, **kwargs: Any) -> Any:
            answer = await verb(*args, **kwargs)
            self.calls[name] += 1
            if self.calls[name] % every == 0:
                self.dropped[name] += 1
                raise Unavailable(f"the reply of {name} was lost", outcome="unknown")
            return answer

        return call
