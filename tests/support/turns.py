"""Which process runs which tests, and in which order, in a run with ``--dist loadgroup``.

Tests that share an ``xdist_group`` mostly wait: for leases to end, for a browser, for another program. If all processes
began with them, as xdist has it, processors would have little to do for minutes. So every other process begins with
the groups, those of few long tests first, and the others with all other tests.
"""

from __future__ import annotations

from collections import deque

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]


class Turns(LoadGroupScheduling):  # type: ignore[misc]  # xdist says nothing of its types
    """As xdist distributes groups, in an order of our own."""

    _groups: deque[str] | None = None
    _singles: deque[str]

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Note that a test is over, and forget what is: xdist counts all it knows after each of many thousand tests."""
        super().mark_test_complete(node, item_index, duration)
        assigned = self.assigned_work[node]
        scope = self._split_scope(self.registered_collections[node][item_index])
        if all(assigned[scope].values()):
            del assigned[scope]

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(self._next(node), last=False)
        super()._assign_work_unit(node)

    def _next(self, node: WorkerController) -> str:
        """The group or test whose turn it is."""
        if self._groups is None:
            alone = {test for test in self.collection or () if self._split_scope(test) == test}
            self._groups = deque(scope for scope in reversed(self.workqueue) if scope not in alone)
            self._singles = deque(scope for scope in self.workqueue if scope in alone)
        both = self._groups, self._singles
        for scopes in both if self.nodes.index(node) % 2 == 0 else reversed(both):
            while scopes:
                if (scope := scopes.popleft()) in self.workqueue:
                    return scope
        left: str = next(iter(self.workqueue))
        return left  # by a process that died


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Turns | None:
    """Have tests distributed by turns, if by groups."""
    return Turns(config, log) if config.getvalue("dist") == "loadgroup" else None
