"""An engine whose replies get lost: the write happened, the caller is told that nobody knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from headrace.engine import Engine
from headrace.errors import Unavailable

ROLES = frozenset({"jobs", "records", "entries", "families", "workers", "documents"})


class LosesReplies:
    """Passes every verb of every role on; drops the reply of every n-th call of the verbs named."""

    def __init__(self, engine: Engine, every: Mapping[str, int]) -> None:
        self._engine, self._every = engine, every
        self.calls: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        return _Role(found, self) if name in ROLES else found


class _Role:
    def __init__(self, role: Any, faulty: LosesReplies) -> None:
        self._role, self._faulty = role, faulty

    def __getattr__(self, name: str) -> Any:
        found, faulty = getattr(self._role, name), self._faulty
        every = faulty._every.get(name)
        if every is None:
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            answer = await found(*args, **kwargs)
            faulty.calls[name] += 1
            if faulty.calls[name] % every == 0:
                faulty.dropped[name] += 1
                raise Unavailable(f"the reply of {name} was lost", outcome="unknown")
            return answer

        return call
