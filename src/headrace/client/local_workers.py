"""The workers that an App has made in this process, for whoever measures them."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

from headrace.worker.worker import Worker

__all__ = ["LocalWorkers"]


class LocalWorkers:
    """Knows every worker that is still in use, and tells of each one as it is made; may be asked on any thread."""

    def __init__(self) -> None:
        self._made: tuple[ref[Worker], ...] = ()
        self._told: list[Callable[[Worker], object]] = []

    def add(self, worker: Worker) -> Worker:
        """The same worker, made known."""
        self._made = (*(one for one in self._made if one() is not None), ref(worker))
        for tell in self._told:
            tell(worker)
        return worker

    def tell(self, each: Callable[[Worker], object]) -> None:
        """Call this with every worker, those included that were made before."""
        self._told.append(each)
        for worker in self.all():
            each(worker)

    def all(self) -> list[Worker]:
        """Those that are still in use."""
        return [worker for one in self._made if (worker := one()) is not None]
