"""How long others wait for their answers while somebody misuses a hub, against how long they usually do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any

__all__ = ["Waits", "asked"]

TIMES = 20
"""How many times as long as usual an answer may take: what stands in line behind a whole read of frames does."""
TYPICAL, SLOWEST = 1.0, 5.0
"""Seconds that are no news on a machine that others keep busy: of half of the answers, and of all."""


class Waits:
    """How long each answer took."""

    def __init__(self, spans: Iterable[float] = ()) -> None:
        self.spans = list(spans)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Time what is asked within."""
        began = perf_counter()
        yield
        self.spans.append(perf_counter() - began)

    def as_usual(self, usual: Waits) -> None:
        """Assert that these took no longer than those, or not long at all."""
        assert self.spans, "nobody asked meanwhile"
        for what, of, floor in (("half of them", median, TYPICAL), ("the slowest", max, SLOWEST)):
            found, bound = of(self.spans), max(floor, TIMES * of(usual.spans))
            assert found <= bound, f"{what} took {found:.2f} s, and usually {of(usual.spans):.3f}"


async def asked(get: Callable[[str], Awaitable[Any]], path: str = "/readyz", times: int = 50) -> Waits:
    """Ask so many times, one after another, for what is answered 200."""
    waits = Waits()
    for _ in range(times):
        with waits.one():
            answer = await get(path)
        assert answer.status_code == 200
    return waits
