"""Slots that handlers yield while they wait for other jobs, and the waiting list of runs that want a slot back."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.worker.slots import Slots

__all__ = ["RunSlot", "YieldedSlots"]

_log = logging.getLogger("headrace.worker")

MAX_YIELDED_SLOTS = {"thread": 1000, "process": 50}
"""How many slots handlers in threads and in child processes may yield: the thread or process stays occupied."""

_NONE: frozenset[str] = frozenset()


class YieldedSlots:
    """The yielded slots of a worker. No job is begun while a run waits for a slot."""

    def __init__(self, slots: Slots) -> None:
        self.count = 0
        """How many slots are yielded, with those of runs that wait for a slot."""
        self.line: deque[RunSlot] = deque()
        """The slots of runs that want a slot again, in the order in which their waits ended."""
        self._slots = slots
        self._by_mode: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """How many slots are yielded, by mode of the handler and by task."""
        self._warned = False

    def saturated(self) -> frozenset[str]:
        """The tasks of which no more jobs are begun, because as many of their handlers wait as may: more of them would
        take all slots, and the jobs that they wait for would find none."""
        if not self.count:
            return _NONE
        return frozenset(task for mode, tasks in self._by_mode.items() if self._is_full(mode) for task in tasks)

    def _is_full(self, mode: str) -> bool:
        most = MAX_YIELDED_SLOTS.get(mode)
        return most is not None and self._by_mode[mode].total() >= most

    def turn_away(self) -> None:
        """Give back the jobs of saturated tasks that were claimed ahead."""
        if saturated := self.saturated():
            for owned in self._slots.buffer.remove(lambda job: job.spec.task in saturated):
                owned.release()

    def admit(self) -> None:
        """Give free slots to the waiting runs."""
        while self.line and self._slots.has_slot:
            self.line[0].returned()

    def tick(self) -> None:
        """Let waiting runs that should stop go on without a slot."""
        for slot in [slot for slot in self.line if slot.stopping]:
            slot.returned()

    # -- for the runs, on the worker's loop

    def add(self, slot: RunSlot) -> bool:
        """Yield the slot to other jobs, if that is allowed; whether it was."""
        if self._is_full(slot.mode) and self._kept < self._slots.concurrency:
            return False  # but the last slot is always yielded: the jobs that are waited for need one
        self._by_mode[slot.mode][slot.task] += 1
        self.count += 1
        if self._is_full(slot.mode):
            self._warn(slot.mode)
            self.turn_away()
        self._slots.slot_freed()
        return True

    @property
    def _kept(self) -> int:
        """How many slots are kept by runs that wait and could not yield them."""
        return sum(run.own_slot is not None and run.own_slot.keeps for run in self._slots.runs.values())

    def _warn(self, mode: str) -> None:
        if not self._warned:
            _log.warning(
                "%d handlers (%s) wait for other jobs; no more of these tasks (%s) are begun here until some are back:"
                " submit the jobs they wait for with a higher priority, or let coroutine functions wait",
                MAX_YIELDED_SLOTS[mode],
                mode,
                ", ".join(sorted(self._by_mode[mode])),
            )
        self._warned = True

    def remove(self, slot: RunSlot) -> None:
        """Stop counting a slot as yielded: its run has a slot again, or is done."""
        tasks = self._by_mode[slot.mode]
        tasks[slot.task] -= 1
        if not tasks[slot.task]:
            del tasks[slot.task]
        self.count -= 1


class RunSlot:
    """The slot of one run: yielded as long as anything in the run waits for another job; there may be several waits."""

    __slots__ = ("_back", "_loop", "_stopping", "_waits", "_yielded", "is_yielded", "mode", "over", "task")

    def __init__(
        self,
        yielded: YieldedSlots,
        loop: asyncio.AbstractEventLoop,
        mode: str,
        task: str,
        stopping: Callable[[], bool],
    ) -> None:
        """``mode``: where the handler runs; ``task``: its task; ``stopping``: whether it is done, or should be."""
        self.mode, self.task = mode, task
        self.is_yielded = self.over = False
        """Whether the slot is yielded; whether the run is over."""
        self._yielded, self._loop = yielded, loop
        self._stopping: Callable[[], bool] | None = stopping
        self._waits = 0
        self._back: Future[None] | None = None
        """While the run waits for a slot: done when it has one again."""

    @property
    def stopping(self) -> bool:
        """Whether the run should stop."""
        stopping = self._stopping
        return stopping is None or stopping()

    @property
    def keeps(self) -> bool:
        """Whether the run waits in a slot that it could not yield."""
        return self._waits > 0 and not self.is_yielded and not self.over

    # -- from the handler, on whatever thread

    def yield_slot(self) -> None:
        """Begin a wait, during which the slot is yielded."""
        self._do(self._yield_slot)

    def take_back(self) -> Future[None] | None:
        """End a wait; a future that is done when the run has a slot again, or None if it has one."""
        future: Future[None] = Future()
        return future if self._do(lambda: self._take_back(future)) and not future.done() else None

    def seize(self) -> None:
        """Let the run go on, whether or not there is a free slot."""
        self._do(lambda: self.returned() if self._back is not None else None)

    def _do(self, act: Callable[[], None]) -> bool:
        """Call this on the worker's loop; whether it will be called."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            act()
            return True
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            return False  # the worker and its loop are gone, and its slots do not matter any more
        return True

    # -- on the worker's loop

    def _yield_slot(self) -> None:
        self._waits += 1
        if self._back is not None:  # another part of the run begins to wait while this one wants a slot
            self._settle()
        elif not self.is_yielded and not self.over and not self.stopping:
            self.is_yielded = self._yielded.add(self)

    def _take_back(self, future: Future[None]) -> None:
        self._waits -= 1
        if not self.is_yielded or self._waits:
            future.set_result(None)
            return
        self._back = future
        self._yielded.line.append(self)
        if self.stopping:
            self.returned()
        else:
            self._yielded.admit()

    def returned(self) -> None:
        """Give the run a slot again."""
        if self.is_yielded:
            self.is_yielded = False
            self._yielded.remove(self)
        self._settle()

    def _settle(self) -> None:
        back, self._back = self._back, None
        if back is not None:
            self._yielded.line.remove(self)
            if not back.cancelled():
                back.set_result(None)

    def close(self) -> None:
        """End with the run: its slot no longer counts as yielded, and waits that it left behind yield nothing."""
        self.over, self._stopping = True, None
        self.returned()
