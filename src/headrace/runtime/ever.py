"""Ever: all that was counted since a process began, for metrics, which only grow; sums are handed in and forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.core.rollup import OTHER, Totals

__all__ = ["MOST_PAIRS", "Ever", "Pair"]

Pair = tuple[str, str]
"""A task and a queue."""

MOST_PAIRS = 200
"""How many pairs of task and queue are told apart; of more than that, the queue is ``OTHER``."""


class Ever:
    """Attempts, and jobs that became dead letters, by task and queue. Whoever shares it between threads locks it."""

    def __init__(self) -> None:
        self._named: set[Pair] = set()
        """The pairs that are told apart, for good: a count that was told under a name must not move to another."""
        self._totals: dict[Pair, Totals] = {}
        self._dead: dict[Pair, int] = {}

    def add(self, counted: Mapping[Pair, Totals]) -> None:
        """Count these as well."""
        self._merge(self._totals, counted)

    def died(self, task: str, queue: str) -> None:
        """Count a job that an attempt left ``failed``."""
        name = self._name((task, queue))
        self._dead[name] = self._dead.get(name, 0) + 1

    def all(self, pending: Iterable[Mapping[Pair, Totals]]) -> tuple[dict[Pair, Totals], dict[Pair, int]]:
        """Everything, those included that are still to be added; attempts, and dead letters."""
        totals = dict[Pair, Totals]()
        self._merge(totals, self._totals)
        for counted in pending:
            self._merge(totals, counted)
        return totals, dict(self._dead)

    def _merge(self, into: dict[Pair, Totals], counted: Mapping[Pair, Totals]) -> None:
        for pair, totals in counted.items():
            into.setdefault(self._name(pair), Totals()).merge(totals)

    def _name(self, pair: Pair) -> Pair:
        if pair in self._named or pair[1] == OTHER:
            return pair
        if len(self._named) >= MOST_PAIRS:
            return pair[0], OTHER
        self._named.add(pair)
        return pair
