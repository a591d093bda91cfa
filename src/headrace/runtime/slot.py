"""Waiting for other jobs inside a handler: its slot is yielded to others meanwhile. Outside a worker there is none."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol, Self

__all__ = ["Slot", "SlotWait", "current"]


class Slot(Protocol):
    """The slot of a run in its worker; waits begin and end on any thread, several at once."""

    @property
    def stopping(self) -> bool:
        """Whether the run should stop: it is not to wait for a slot, then."""
        ...

    def yield_slot(self) -> None:
        """Begin a wait: others may have the slot."""
        ...

    def take_back(self) -> Future[None] | None:
        """End a wait; when the future is done (None: right now) the run has a slot and may go on."""
        ...

    def seize(self) -> None:
        """Go on, whether or not there is a slot."""
        ...


class HasSlot(Protocol):
    """A caller that may occupy a slot."""

    def slot(self) -> Slot | None:
        """The slot, if there is one that can be yielded."""
        ...


class HasCaller(Protocol):
    """The run that code is in: the Context of its handler."""

    @property
    def _caller(self) -> HasSlot:
        """What called the handler."""
        ...


current: ContextVar[HasCaller | None] = ContextVar("headrace_context", default=None)
"""The run that this code is in, if it is in one."""


class SlotWait:
    """One wait for another job: ``async with SlotWait() as waiting:``, and ``waiting.yield_slot()`` once there is
    something to wait for. After the block the run has a slot again."""

    __slots__ = ("_slot", "_yielded")

    def __init__(self) -> None:
        holder = current.get()
        self._slot = None if holder is None else holder._caller.slot()
        self._yielded = False

    def yield_slot(self) -> None:
        """Yield the slot, since nothing can be done here before the other job moves."""
        if self._slot is not None and not self._yielded:
            self._yielded = True
            self._slot.yield_slot()

    async def back(self) -> None:
        """Have the slot again: what follows is the handler's own work."""
        if self._slot is None or not self._yielded:
            return
        self._yielded = False
        future = self._slot.take_back()
        if future is not None:
            await _granted(future, self._slot)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._yielded:
            return
        if isinstance(error, GeneratorExit) and self._slot is not None:  # torn down: nothing can be awaited any more
            self._yielded = False
            self._slot.take_back()
            self._slot.seize()
        else:
            await self.back()


async def _granted(future: Future[None], slot: Slot) -> None:
    """Wait for a slot. A cancellation is passed on when there is one: a handler's own time-out is no reason to have
    more of them at work than there are slots. A handler that is to stop does not wait."""
    granted, cancelled = asyncio.wrap_future(future), None
    while not granted.done():
        try:
            await asyncio.wait([granted])
        except asyncio.CancelledError as error:
            if slot.stopping:
                slot.seize()
                raise
            cancelled = error
        except GeneratorExit:
            slot.seize()
            raise
    if cancelled is not None:
        raise cancelled
