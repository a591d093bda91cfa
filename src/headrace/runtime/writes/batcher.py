"""Group commit: what is put while a write is in flight forms the next write.

There is no linger: a lone item is written at once, and where the batcher has a short way for one, without a task or a
timer of its own; as soon as others come, they are written together. One write is in flight at a time; where a batcher
allows it, a second one once half a batch is waiting, so that it is made ready while the first is being written. Nothing
is acknowledged before it is durable, every waiter gets its reply or an error, and a write with a lost reply is repeated
until the reply is known, which is safe because every write may be repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

import msgspec

from headrace.errors import EngineError, Overloaded, StoreLost, Unavailable, Unstorable
from headrace.runtime.host import Host
from headrace.runtime.retries import Pauses
from headrace.runtime.writes.load import Load

__all__ = ["Batcher", "Ticket", "unstorable"]

T = TypeVar("T")
A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)

_log = logging.getLogger("headrace.batcher")

MAX_ROWS = 1000
MAX_BYTES = 4 * 1024 * 1024
_FULL_ROWS = MAX_ROWS // 2
_FEW_DIVISOR = 4
"""Which part of what was just written is few; more than that fills the next write well enough."""
_QUIET_ROUNDS = 2
"""Rounds of the loop until an answered caller has passed on, and the next one has come through a semaphore."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.05, 2.0


_MAX_NAMED_JOBS = 3
"""Maximum number of jobs that an error names."""


def unstorable(error: Unstorable, items: Sequence[T], identify: Callable[[T], UUID]) -> Unstorable:
    """The error with the jobs that it is about: those of these items that cannot be written as bytes, else all."""
    if error.ids:
        return error
    ids = [identify(item) for item in items if not _is_writable(item)] or [identify(item) for item in items]
    named = ", ".join(map(str, ids[:_MAX_NAMED_JOBS])) + (
        f" and {len(ids) - _MAX_NAMED_JOBS} more" if len(ids) > _MAX_NAMED_JOBS else ""
    )
    named_error = Unstorable(f"job{'s' if len(ids) > 1 else ''} {named}: {error}", ids=ids)
    named_error.__cause__ = error
    return named_error


def _is_writable(item: object) -> bool:
    try:
        msgspec.json.encode(item)
    except Exception:
        return False
    return True


class Ticket(Protocol[T, A_contra]):
    """Items that are written together or not at all, and the caller that waits for them."""

    items: Sequence[T]
    weight: int
    """Set by the Batcher."""
    since: float
    """From when on the timeout counts, where there is one; set by the Batcher."""

    def wanted(self) -> bool:
        """Whether the caller still waits for the reply; called just before the write."""
        ...

    def answer(self, answers: Sequence[A_contra]) -> None:
        """Take the replies, since the items are durable; called once, unless ``reject`` is."""
        ...

    def reject(self, error: BaseException) -> None:
        """Take the error: the items were not stored, or that is not known."""
        ...


class _Waiter(Generic[T, A]):
    """A caller that awaits the replies."""

    __slots__ = ("future", "items", "since", "weight")

    def __init__(self, items: Sequence[T]) -> None:
        self.items, self.weight, self.since = items, 0, 0.0
        self.future: asyncio.Future[list[A]] = asyncio.get_running_loop().create_future()

    def wanted(self) -> bool:
        return not self.future.done()

    def answer(self, answers: Sequence[A]) -> None:
        if not self.future.done():
            self.future.set_result(list(answers))

    def reject(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Batcher(Generic[T, A]):
    """One writer of batches."""

    def __init__(
        self,
        write: Callable[[list[T]], Awaitable[list[A]]],
        host: Host,
        *,
        name: str,
        identify: Callable[[T], UUID],
        weigh: Callable[[T], int],
        distinct: Callable[[T], Hashable] | None = None,
        capacity: int | None = None,
        timeout: float | None = None,
        flights: int = 1,
        begin: Callable[[T, Callable[[A | BaseException | None], None]], bool] | None = None,
        load: Load | None = None,
    ) -> None:
        """``distinct``: no two items of one key in one write. ``capacity``: how many items may wait before callers do.

        ``timeout``: seconds after which a caller gets ``Unavailable`` or ``Overloaded``; None is never.
        ``flights``: how many writes may be under way at once, where their order is of no matter.
        ``begin``: the short way of one item; whether it is on its way now. Once nothing of it is under way any more,
        it calls back with the reply, with the error of a write that failed, or with None if the item must be written
        the usual way. A caller that gives up waiting does not stop it.
        ``load``: what waits here is counted there, and where there is a ``capacity``, callers wait while it is full.
        """
        self._write, self._host, self._name = write, host, name
        self._identify, self._weigh, self._distinct = identify, weigh, distinct
        self._capacity, self._timeout, self._flights, self._begin = capacity, timeout, flights, begin
        self._queue: deque[Ticket[T, A]] = deque()
        self._waiting = 0
        self._pumps: set[asyncio.Task[None]] = set()
        self._alone: Ticket[T, A] | None = None
        """What is on the short way."""
        self._quiet = True
        """Whether the last write was of one item, and none came meanwhile: most likely the next one is alone, too."""
        self._room, self._settled = asyncio.Event(), asyncio.Event()
        self._closed = False
        self._give_up_at = float("inf")
        self._load = load or Load()

    @property
    def waiting(self) -> int:
        """Items put and not yet taken into a write."""
        return self._waiting

    async def put(self, item: T) -> A:
        """Write one item with whatever else is waiting; its reply."""
        alone = self.put_alone(item)
        return (await (self.put_many((item,)) if alone is None else alone))[0]

    def put_alone(self, item: T) -> asyncio.Future[list[A]] | None:
        """Begin to write one item the short way; None: there is none, or something else waits or is under way. It is
        ``put`` without a coroutine, for a caller that has one already."""
        begin = self._begin
        if begin is None or not self._quiet or self._closed or self._queue or self._pumps or self._alone is not None:
            return None
        waiter: _Waiter[T, A] = _Waiter((item,))
        waiter.since = 0.0 if self._timeout is None else self._host.clock.monotonic()
        self._alone, begun = waiter, False
        try:
            begun = begin(item, self._arrived)
        finally:
            if not begun:
                self._alone = None
        return waiter.future if begun else None

    async def put_many(self, items: Sequence[T]) -> list[A]:
        """Write these items together, in one commit; their replies."""
        load, most = self._load, self._capacity
        if most is not None and (self._waiting >= most or load.bytes >= load.most):
            await self._wait_for_room()
        waiter: _Waiter[T, A] = _Waiter(items)
        self.add(waiter)
        return await waiter.future

    def add(self, ticket: Ticket[T, A]) -> None:
        """Like ``put_many`` for callers that cannot wait; never refused for want of room."""
        items = ticket.items
        if self._closed:
            ticket.reject(self._unavailable(items, "this session is closing", False))
            return
        ticket.weight = sum(map(self._weigh, items)) if len(items) > 1 else self._weigh(items[0])
        ticket.since = 0.0 if self._timeout is None else self._host.clock.monotonic()
        self._load.bytes += ticket.weight
        self._queue.append(ticket)
        self._waiting += len(items)
        if self._alone is None and (
            not self._pumps or (self._waiting >= _FULL_ROWS and len(self._pumps) < self._flights)
        ):
            self._pump(self._run())

    def _pump(self, writing: Coroutine[Any, Any, None]) -> None:
        # Not by the loop: with an eager task factory the pump would run, and be over, before it is noted.
        self._pumps.add(asyncio.Task(writing, loop=asyncio.get_running_loop(), name=f"batcher-{self._name}"))

    def _arrived(self, answer: A | BaseException | None) -> None:
        """Settle what went the short way, or write it as any other; write what came meanwhile."""
        ticket, self._alone = self._alone, None
        assert ticket is not None
        if answer is None or isinstance(answer, BaseException):
            self._quiet = False
            self._pump(self._run(ticket, answer))
        else:
            self._answer([ticket], [answer])
            if self._queue:
                self._quiet = False
                self._pump(self._run())
        if self._closed:
            self._settled.set()

    async def close(self, timeout: float = 5.0) -> None:
        """Take no more, write what is waiting, settle every ticket; give up on a silent store after ``timeout``."""
        self._closed = True
        self._give_up_at = self._host.clock.monotonic() + timeout
        self._room.set()
        while self._pumps or self._alone is not None:
            if self._alone is not None:
                self._settled.clear()
                await self._settled.wait()
            else:
                await asyncio.shield(next(iter(self._pumps)))

    def _is_full(self) -> bool:
        return self._capacity is not None and (self._waiting >= self._capacity or self._load.keeps(self._room.set))

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                while self._is_full() and not self._closed:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise Overloaded(f"the {self._name} lane stayed full for {self._timeout:g} s; nothing was stored") from None

    async def _run(self, first: Ticket[T, A] | None = None, failed: BaseException | None = None) -> None:
        """Write what waits; a second writer beside the first goes on only while there is much. ``first``: a ticket to
        write before all others, and how it ``failed`` on the short way."""
        pump = asyncio.current_task()
        assert pump is not None
        rows = 0
        try:
            if first is not None:
                await self._settle([first], failed)
                rows = 1
            while self._waiting >= (_FULL_ROWS if len(self._pumps) > 1 else 1):
                tickets, count, weight = self._take()
                self._room.set()
                if tickets:
                    rows += count
                    try:
                        await self._settle(tickets)
                    finally:
                        self._load.left(weight)
                    if 0 < self._waiting <= count // _FEW_DIVISOR:
                        await self._let_more_come()
        finally:
            self._pumps.discard(pump)
            self._quiet = rows == 1
            if self._queue and not self._pumps:  # cancelled from outside: no caller may be left waiting
                lost, self._queue, self._waiting = self._queue, deque(), 0
                for ticket in lost:
                    self._load.left(ticket.weight)
                    ticket.reject(self._unavailable(ticket.items, "the event loop ended first", False))

    async def _let_more_come(self) -> None:
        """Let callers that were just answered put their next items: few wait where many were written, and most of
        those will be back in a moment, as the submitters of a busy program are. Without them the few and the many
        would take turns from then on, with two commits for what could be one. This takes no time, only turns."""
        for _ in range(_QUIET_ROUNDS):
            await asyncio.sleep(0)

    def _take(self) -> tuple[list[Ticket[T, A]], int, int]:
        """The next write: whole tickets, in order, within the limits of one batch; how many items they have, and what
        they weigh."""
        tickets: list[Ticket[T, A]] = []
        queue, distinct = self._queue, self._distinct
        seen: set[Hashable] = set()
        rows = weight = 0
        while queue:
            ticket = queue[0]
            items = ticket.items
            count = len(items)
            if tickets and (rows + count > MAX_ROWS or weight + ticket.weight > MAX_BYTES):
                break
            if distinct is not None and count == 1:  # as below, for most of them
                key = distinct(items[0])
                if key in seen:
                    break
                seen.add(key)
            elif distinct is not None:
                keys = set(map(distinct, items))
                if not seen.isdisjoint(keys):
                    break
                seen |= keys
            queue.popleft()
            self._waiting -= count
            if not ticket.wanted():
                self._load.left(ticket.weight)
                continue  # its caller gave up before anything was written
            tickets.append(ticket)
            rows += count
            weight += ticket.weight
        return tickets, rows, weight

    async def _settle(self, tickets: list[Ticket[T, A]], failed: BaseException | None = None) -> None:
        """Write until every ticket has its reply or its error; ``failed``: how a first write of them ended."""
        try:
            answers = await self._write_surely(tickets, failed)
        except Unstorable as error:
            if len(tickets) == 1:
                tickets[0].reject(unstorable(error, tickets[0].items, self._identify))
            else:
                await self._halve(tickets)
        except BaseException as error:
            if len(tickets) > 1 and isinstance(error, Exception) and not isinstance(error, EngineError):
                # It is unforeseen, so that one of them may be the cause; to write the others again is harmless.
                await self._halve(tickets)
                return
            for ticket in tickets:
                if isinstance(error, Unavailable):
                    lost = isinstance(error, StoreLost)
                    ticket.reject(self._unavailable(ticket.items, str(error), error.outcome == "unknown", lost=lost))
                elif isinstance(error, EngineError):
                    ticket.reject(error)
                else:
                    ticket.reject(self._unavailable(ticket.items, repr(error), True))
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, EngineError):
                _log.exception("a write of the %s lane failed in an unforeseen way", self._name)
        else:
            self._answer(tickets, answers)

    def _answer(self, tickets: list[Ticket[T, A]], answers: list[A]) -> None:
        start = 0
        for ticket in tickets:
            end = start + len(ticket.items)
            try:
                ticket.answer(answers[start:end])
            except Exception:  # one that stumbles over its reply must not keep the others from theirs
                _log.exception("an answer of the %s lane was not understood", self._name)
            start = end

    async def _halve(self, tickets: list[Ticket[T, A]]) -> None:
        """Write the halves apart, and theirs in turn if need be: one bad row must fail alone."""
        half = len(tickets) // 2
        try:
            await self._settle(tickets[:half])
        except BaseException:  # cancelled from outside: those not yet tried must get the error, too
            for ticket in tickets[half:]:
                ticket.reject(self._unavailable(ticket.items, "the event loop ended first", False))
            raise
        await self._settle(tickets[half:])

    async def _write_surely(self, tickets: list[Ticket[T, A]], failed: BaseException | None = None) -> list[A]:
        """Repeat after a lost reply or a refusal until the reply is known or the timeout is over."""
        items = [item for ticket in tickets for item in ticket.items]
        pauses: Pauses | None = None
        unknown, since = False, tickets[0].since or self._host.clock.monotonic()
        while True:
            try:
                if failed is not None:
                    error, failed = failed, None
                    raise error
                return await self._write(items)
            except StoreLost:
                raise  # it does not come back
            except Unavailable as error:
                unknown = unknown or error.outcome == "unknown"
                pauses = pauses or Pauses(self._host, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, spread=(0.5, 1.0))
                now = self._host.clock.monotonic()
                late = self._timeout is not None and now + pauses.seconds - since > self._timeout
                if late or now > self._give_up_at:
                    message = f"{error} (repeated for {now - since:.1f} s)"
                    raise Unavailable(message, outcome="unknown" if unknown else "refused") from error
                if pauses.is_first:
                    _log.warning("the store is unavailable for %s, repeating: %s", self._name, error)
            await pauses.sleep()

    def _unavailable(self, items: Sequence[T], why: str, unknown: bool, *, lost: bool = False) -> Unavailable:
        ids = [self._identify(item) for item in items]
        return (StoreLost if lost else Unavailable)(
            f"the {self._name} were not acknowledged: {why}", outcome="unknown" if unknown else "refused", ids=ids
        )
