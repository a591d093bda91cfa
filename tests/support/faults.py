"""An engine whose replies get lost: the write happened, the caller is told that nobody knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from headrace.engine import Engine
from headrace.errors import Unavailable


class LosesReplies:
    """Passes every verb on; drops the reply of every n-th call of the verbs named."""

    def __init__(self, engine: Engine, every: Mapping[str, int]) -> None:
        self._engine, self._every = engine, every
        self.calls: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        every = self._every.get(name)
        if every is None:
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            answer = await found(*args, **kwargs)
            self.calls[name] += 1
            if self.calls[name] % every == 0:
                self.dropped[name] += 1
                raise Unavailable(f"the reply of {name} was lost", outcome="unknown")
            return answer

        return call
