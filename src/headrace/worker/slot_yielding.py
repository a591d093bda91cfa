"""Slots that are yielded while their handlers wait for other jobs, and the line of those who want one back."""

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

MOST = {"thread": 1000, "process": 50}
"""How many slots may be yielded by handlers in threads and in child processes: what they wait in stays occupied."""

_NONE: frozenset[str] = frozenset()


class YieldedSlots:
    """The yielded slots of a worker. Nothing new is begun while somebody is in line for one."""

    def __init__(self, slots: Slots) -> None:
        self.count = 0
        """How many there are, also those of handlers in line."""
        self.line: deque[RunSlot] = deque()
        """Whose waits are over, in that order."""
        self._slots = slots
        self._by_mode: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """How many slots handlers have yielded, by where they run and by task."""
        self._warned = False

    def shunned(self) -> frozenset[str]:
        """The tasks of which nothing more is begun, because as many of them wait as may: what they wait for would find
        no slot, were all of them taken by more of their kind."""
        if not self.count:
            return _NONE
        return frozenset(task for mode, tasks in self._by_mode.items() if self._is_full(mode) for task in tasks)

    def _is_full(self, mode: str) -> bool:
        most = MOST.get(mode)
        return most is not None and self._by_mode[mode].total() >= most

    def turn_away(self) -> None:
        """Give back what was claimed ahead of shunned tasks."""
        if shunned := self.shunned():
            for owned in self._slots.buffer.remove_of(shunned):
                owned.release()

    def admit(self) -> None:
        """Give free slots to those in line."""
        while self.line and self._slots.has_slot:
            self.line[0].returned()

    def tick(self) -> None:
        """Have those in line go on that are to stop: they wait for no slot."""
        for slot in [slot for slot in self.line if slot.stopping]:
            slot.returned()

    # -- for the runs, on the worker's loop

    def add(self, slot: RunSlot) -> bool:
        """Let others have the slot, if they may; whether they may."""
        if self._is_full(slot.mode) and self._kept < self._slots.concurrency:
            return False  # never the last slot: what is waited for needs one
        self._by_mode[slot.mode][slot.task] += 1
        self.count += 1
        if self._is_full(slot.mode):
            self._warn(slot.mode)
            self.turn_away()
        self._slots.slot_freed()
        return True

    @property
    def _kept(self) -> int:
        """How many slots are kept by handlers that wait."""
        return sum(run.own_slot is not None and run.own_slot.keeps for run in self._slots.runs.values())

    def _warn(self, mode: str) -> None:
        if not self._warned:
            _log.warning(
                "%d handlers (%s) wait for other jobs; no more of these tasks (%s) are begun here until some are back:"
                " submit the jobs they wait for with a higher priority, or let coroutine functions wait",
                MOST[mode],
                mode,
                ", ".join(sorted(self._by_mode[mode])),
            )
        self._warned = True

    def remove(self, slot: RunSlot) -> None:
        """Count a slot no longer: its run has one again, or is done without one."""
        tasks = self._by_mode[slot.mode]
        tasks[slot.task] -= 1
        if not tasks[slot.task]:
            del tasks[slot.task]
        self.count -= 1


class RunSlot:
    """The slot of one run: yielded as long as anything in the run waits for another job, however many such waits
    there are."""

    __slots__ = ("_back", "_loop", "_stopping", "_waits", "_yielded", "is_yielded", "mode", "over", "task")

    def __init__(
        self,
        yielded: YieldedSlots,
        loop: asyncio.AbstractEventLoop,
        mode: str,
        task: str,
        stopping: Callable[[], bool],
    ) -> None:
        """``mode`` and ``task``: where the handler runs, and whose it is. ``stopping``: is it done, or should it be?"""
        self.mode, self.task = mode, task
        self.is_yielded = self.over = False
        """Whether others may have the slot; whether the run is over."""
        self._yielded, self._loop = yielded, loop
        self._stopping: Callable[[], bool] | None = stopping
        self._waits = 0
        self._back: Future[None] | None = None
        """What whoever is in line waits for."""

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
        """Begin a wait: others may have the slot."""
        self._do(self._yield_slot)

    def take_back(self) -> Future[None] | None:
        """End a wait; what is done when the run has a slot again, or None if it has one."""
        future: Future[None] = Future()
        return future if self._do(lambda: self._take_back(future)) and not future.done() else None

    def seize(self) -> None:
        """Go on, whether or not there is a slot."""
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
            return False  # the worker and its loop are gone: its slots are nobody's
        return True

    # -- on the worker's loop

    def _yield_slot(self) -> None:
        self._waits += 1
        if self._back is not None:  # another part of the run waits again before the slot was back
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
        """End with the run: what it yielded is no longer counted, and waits that it left behind yield nothing."""
        self.over, self._stopping = True, None
        self.returned()
