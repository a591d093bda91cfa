"""A thread that runs one call after another on one connection, and lends it to a caller while it is idle.

Its replies wake the event loop by an eventfd, where the system has that.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, TypeVar
from uuid import UUID

import apsw

from headrace.engines.sql.encoding import encode
from headrace.engines.sqlite.store.connection import ask, damaged, translate
from headrace.engines.sqlite.store.files import Files
from headrace.errors import EngineError, NotOpen, StoreLost
from headrace.runtime.host import Host

__all__ = ["Answers", "DbThread", "bound"]


_Over = Callable[[Any, Exception | None], None]


class Answers:
    """Calls back on a loop, which is woken by an ``eventfd`` where the system has that.

    ``call_soon_threadsafe`` of asyncio sends through one socket and receives from another until it is empty: that takes
    three system calls where one is enough.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """To be made on the loop."""
        self._loop, self._process = loop, os.getpid()
        self._waiting: deque[tuple[_Over, Any, Exception | None]] = deque()
        self._bell = self._listen()
        """The descriptor of the eventfd; -1: there is none."""

    def _listen(self) -> int:
        try:
            bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except (AttributeError, OSError):
            return -1
        try:
            # In a context of its own: what a reply starts has nothing to do with the opener of the store.
            Context().run(self._loop.add_reader, bell, self._deliver)
        except (NotImplementedError, OSError):
            os.close(bell)
            return -1
        return bell

    def put(self, over: _Over, answer: Any, error: Exception | None) -> None:
        """Call ``over`` on the loop, soon, and after those that were put before; on any thread."""
        if self._bell >= 0:
            self._waiting.append((over, answer, error))
            os.eventfd_write(self._bell, 1)
            return
        try:
            self._loop.call_soon_threadsafe(over, answer, error)
        except RuntimeError:  # the loop is closed: no caller waits any more
            pass

    def close(self) -> None:
        """Deliver what was put, on the loop; no thread may put more."""
        bell, self._bell = self._bell, -1
        if bell >= 0:
            if self._process == os.getpid():  # a forked process would remove the reader of its parent's loop
                self._loop.remove_reader(bell)
            os.close(bell)
            self._call()

    def _deliver(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        try:
            self._call()
        finally:
            if self._waiting and self._bell >= 0:  # an interrupt came in between: the rest is due all the same
                os.eventfd_write(self._bell, 1)

    def _call(self) -> None:
        while self._waiting:
            over, answer, error = self._waiting.popleft()
            try:
                over(answer, error)
            except Exception as failed:  # as the loop does it: the next ones must be called
                self._loop.call_exception_handler({"message": f"{over!r} failed", "exception": failed})


T = TypeVar("T")

_Call = tuple[Callable[[apsw.Connection], Any], Callable[[Any, Exception | None], None]]
_Work = _Call | Literal["tidy"]

LOCK_TIMEOUT_SECONDS = 30.0
"""Timeout of a locked file, in seconds."""

BRIEF_LOCK_TIMEOUT_SECONDS = 1.0
"""The same for a caller that waits on its own thread, and would rather use ``Jobs.insert`` then."""

_BUSY_WAIT_MILLISECONDS = 60
"""Milliseconds of one wait inside SQLite.

Within one wait SQLite sleeps longer and longer, up to a tenth of a second. Beginning again keeps a busy process from
being faster every time.
"""


class DbThread:
    """Runs calls in order on its own thread; each caller awaits the reply on its own loop.

    A call that was passed in is run even if its caller is cancelled. While there is none, a caller on a thread without
    a loop may have the connection to itself (``run_at_once``).
    """

    def __init__(
        self,
        name: str,
        path: Path,
        host: Host,
        connect: Callable[[], apsw.Connection],
        tidy: Callable[[apsw.Connection], float] | None = None,
    ) -> None:
        """``tidy`` is called between two calls now and then; it returns after how many seconds to call it again."""
        self._name, self._path, self._host, self._connect, self._tidy = name, path, host, connect, tidy
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ending: threading.Thread | None = None
        """The same while it ends: a cancelled close is repeated."""
        self._over: asyncio.Future[None] | None = None
        self._answers: Answers | None = None
        self._process = 0
        """The process that has the thread; 0: it has ended."""
        self._turn = threading.Lock()
        """Its holder uses the connection."""
        self._begun: tuple[apsw.Connection, Files] | None = None
        self._busy = False
        """Whether the thread has a call to run, or runs it."""
        self._torn = False
        """Whether an interrupt of a caller's thread may have come while its transaction was being undone."""
        self._tidy_at = 0.0

    async def open(self) -> None:
        """Start the thread and connect on it; raises what is wrong with the file."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        over: asyncio.Future[None] = loop.create_future()
        answers = Answers(loop)
        self._work, self._over, self._busy, self._answers = SimpleQueue(), over, False, answers

        def main(work: SimpleQueue[_Work | None] = self._work) -> None:
            try:
                self._main(work, answers, lambda error: answers.put(partial(_settle, ready), None, error))
            finally:
                self._process = 0
                answers.put(partial(_settle, over), None, None)

        self._process = os.getpid()
        self._thread = threading.Thread(target=main, name=self._name, daemon=True)
        self._thread.start()
        try:
            await ready
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Run the calls that are queued, disconnect, and end the thread."""
        if self._thread is not None:
            self._ending, self._thread = self._thread, None
            self._work.put(None)
        ending, answers = self._ending, self._answers
        if ending is None or self._over is None or answers is None:
            return
        if self._process == os.getpid():  # in a forked process there is no such thread
            await asyncio.shield(self._over)
        ending.join()  # it has nothing left to do
        self._ending = None
        answers.close()

    async def fetch(self, name: str, *args: Any) -> list[Any]:
        """Run the statement of this name; return its rows."""
        values = [bound(arg) for arg in args]
        return await self.run(lambda connection: connection.execute(ask(name), values).fetchall())

    async def run(self, call: Callable[[apsw.Connection], T]) -> T:
        """Run this call on the thread; return its result or raise its error."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.begin(call, partial(_settle, answer))
        return await answer

    async def write(self, call: Callable[[apsw.Connection], T]) -> T:
        """Run this call on the thread, in a transaction that is committed after it."""

        def transact(connection: apsw.Connection) -> T:
            connection.execute("BEGIN IMMEDIATE")
            answer = call(connection)
            connection.execute("COMMIT")
            return answer

        return await self.run(transact)

    def begin(self, call: Callable[[apsw.Connection], T], over: Callable[[T | None, Exception | None], None]) -> None:
        """Run this call on the thread; ``over`` is called on the loop of ``open`` with its result or its error."""
        self._make_sure()
        self._work.put((call, over))

    def run_at_once(self, call: Callable[[apsw.Connection], T]) -> T | None:
        """Run this call on the caller's thread, which must not be one that runs a loop; None: not now.

        Calls that wait or are run go first, so that a caller that comes again and again delays none of them.
        """
        self._make_sure()
        if self._busy or self._turn.locked() or not self._work.empty():
            return None
        # Two callers that find it free at the same moment wait for each other here, for one call. Not ``acquire``: an
        # interrupt that arrives as that returns would leave the lock locked for ever.
        with self._turn:
            if self._begun is None:
                return None
            connection, files = self._begun
            try:
                if self._torn:
                    _undo(connection)
                self._torn = True
                answer = self._run(connection, call, BRIEF_LOCK_TIMEOUT_SECONDS)
                self._torn = False
                files.check()
            except Exception as error:
                raise self._mean(error, files) from error
        if self._tidy is not None and self._host.clock.monotonic() >= self._tidy_at:
            self._tidy_at = float("inf")
            self._work.put("tidy")
        return answer

    def _make_sure(self) -> None:
        # Not ``is_alive``: an interrupt within that makes Python 3.11 treat the thread as ended, for ever.
        process = self._process
        if self._thread is None or not process:
            raise NotOpen("this session of the SQLite engine is not open")
        if process != os.getpid():
            raise NotOpen("this session of the SQLite engine was opened before the process forked: open one after it")

    # -- on the thread

    def _main(
        self, work: SimpleQueue[_Work | None], answers: Answers, ready: Callable[[Exception | None], None]
    ) -> None:
        try:
            connection, files = self._begun = self._patiently(None, self._begin)
        except Exception as error:
            ready(translate(error, self._path))
            return
        self._tidy_at = self._host.clock.monotonic()
        ready(None)
        try:
            while (item := work.get()) is not None:
                self._busy = True
                with self._turn:
                    if item != "tidy":
                        self._answer(item, answers, connection, files)
                    if self._tidy is not None and (item == "tidy" or self._host.clock.monotonic() >= self._tidy_at):
                        self._tidy_at = self._host.clock.monotonic() + self._tidy(connection)
                        connection.set_busy_timeout(_BUSY_WAIT_MILLISECONDS)
                del item  # and what it holds, which may be much
                self._busy = False
        finally:
            with self._turn:
                self._begun = None
                if self._tidy is not None:
                    with suppress(Exception):  # whatever it is, no caller is left
                        self._tidy(connection)
                files.close()
                connection.close()

    def _answer(self, item: _Call, answers: Answers, connection: apsw.Connection, files: Files) -> None:
        call, over = item
        try:
            answer, error = self._do(connection, call, files), None
        except BaseException as failed:  # whatever it is, the calls behind this one must be run
            answer, error = None, self._mean(failed, files)
        answers.put(over, answer, error)

    def _begin(self) -> tuple[apsw.Connection, Files]:
        connection = self._connect()
        try:
            connection.set_busy_timeout(_BUSY_WAIT_MILLISECONDS)
            return connection, Files(connection, self._path, self._host.clock)
        except BaseException:
            connection.close()
            raise

    # -- on either

    def _do(
        self,
        connection: apsw.Connection,
        call: Callable[[apsw.Connection], T],
        files: Files,
    ) -> T:
        if self._torn:
            _undo(connection)
            self._torn = False
        answer = self._run(connection, call, LOCK_TIMEOUT_SECONDS)
        files.check()  # after the commit: a write into a file that is gone must not be acknowledged
        return answer

    def _mean(self, error: BaseException, files: Files) -> Exception:
        """Return the error for the caller; a future takes no StopIteration, and a KeyboardInterrupt would end the
        loop."""
        if isinstance(error, apsw.Error):
            try:
                files.check()  # if the file is gone, that is the cause of any error of SQLite
            except StoreLost as lost:
                return lost
        if isinstance(error, apsw.NotADBError):  # it was one when it was opened
            return damaged(self._path, error)
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            return translate(error, self._path)
        return EngineError(f"the thread that works on {self._path} was interrupted by {error!r}")

    def _run(self, connection: apsw.Connection, call: Callable[[apsw.Connection], T], patience: float) -> T:
        """Run a call at once, as nearly always, or when no other process has the file locked any more."""
        try:
            return call(connection)
        except (apsw.BusyError, apsw.LockedError):
            _undo(connection)
        except BaseException:
            _undo(connection)
            raise
        return self._patiently(connection, partial(call, connection), patience)

    def _patiently(
        self, connection: apsw.Connection | None, act: Callable[[], T], patience: float = LOCK_TIMEOUT_SECONDS
    ) -> T:
        """Run ``act``, and wait until a timeout while another process has the file locked."""
        began = self._host.clock.monotonic()
        tries = 0
        while True:
            try:
                if connection is not None:
                    connection.set_busy_timeout(int(_BUSY_WAIT_MILLISECONDS * (0.5 + self._host.dice.chance())))
                return act()
            except (apsw.BusyError, apsw.LockedError):
                tries += 1
                _undo(connection)
                # Tries are counted too, for clocks that stand still.
                if self._host.clock.monotonic() - began > patience or tries * _BUSY_WAIT_MILLISECONDS > 4000 * patience:
                    raise
            except BaseException:
                _undo(connection)
                raise


def bound(value: Any) -> Any:
    """Return a value as a statement takes it: ids as their bytes, lists as JSON."""
    if isinstance(value, UUID):
        return value.bytes
    return encode(value) if isinstance(value, list) else value


def _undo(connection: apsw.Connection | None) -> None:
    """Roll back a transaction that an error left open."""
    if connection is not None and connection.in_transaction:
        connection.execute("ROLLBACK")


def _settle(future: asyncio.Future[Any], answer: Any, error: Exception | None) -> None:
    if future.done():  # the caller was cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(answer)
