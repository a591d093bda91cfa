"""For callers without an event loop: one loop per process, on a thread of its own, made when first needed."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent import futures
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace.errors import SyncInAsync
from headrace.worker.execution.context import Context

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.session import Session

__all__ = ["close", "is_here", "leave", "refuse_in_loop", "run_on", "session_of", "wait", "writing"]

T = TypeVar("T")

_End = tuple[BaseException | None, T | None]
"""How a coroutine ended: its error, or what it returned."""

POLL_SECONDS = 0.25
"""Seconds between two checks whether a handler that waits on its thread should stop."""


class BackgroundLoop:
    """The loop, its thread, and the Apps that are open on it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._apps: dict[int, App] = {}
        self._waiting: Counter[int] = Counter()
        self._entering = asyncio.Lock()
        self._kept: list[object] = []
        self._thread = threading.Thread(target=self._main, name="headrace-sync", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def is_here(self) -> bool:
        """Whether this is the loop's own thread."""
        return threading.current_thread() is self._thread

    def run(
        self, work: Coroutine[Any, Any, T], timeout: float | None = None, check: Callable[[], None] | None = None
    ) -> T:
        return run_on(self.loop, work, timeout, check)

    async def inside(self, app: App, work: Coroutine[Any, Any, T]) -> T:
        """Open the App here, unless it is, and do the work; the App stays open for the next."""
        try:
            async with self._entering:
                if id(app) not in self._apps:
                    await app.__aenter__()
                    self._apps[id(app)] = app
                self._waiting[id(app)] += 1
        except BaseException:
            work.close()
            raise
        try:
            return await work
        finally:
            self._waiting[id(app)] -= 1

    async def leave(self, app: App) -> None:
        """Close the App here, unless a caller waits."""
        async with self._entering:
            if id(app) in self._apps and not self._waiting[id(app)]:
                del self._apps[id(app)]
                await app.__aexit__(None, None, None)

    async def _leave_all(self) -> None:
        async with self._entering:
            apps, self._apps = self._apps, {}
            for app in apps.values():
                await app.__aexit__(None, None, None)

    def close(self) -> None:
        try:
            # What hangs at the end of a process must not keep it from ending.
            self.run(self._leave_all(), timeout=10)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(timeout=5)
            if not self._thread.is_alive():
                self.loop.close()

    def forget(self) -> None:
        """Take the Apps for closed: the process forked, and the thread stayed behind."""
        self._kept = [app._forget(self.loop) for app in self._apps.values()]


_lock = threading.Lock()
_background: BackgroundLoop | None = None
_left_behind: list[BackgroundLoop] = []
"""Kept for ever: connections of the parent process must not be closed by its children."""


writing: set[int] = set()
"""The threads that are in the middle of a write of their own, on a connection that they hold."""


def run_on(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    timeout: float | None = None,
    check: Callable[[], None] | None = None,
) -> T:
    """Run the coroutine on the loop of another thread, and wait for what it returns, or until ``check`` raises.

    Not by ``run_coroutine_threadsafe``: the loop would need a lock that this thread holds now and then, and an
    interrupt at that moment would leave it locked for ever, and the loop with it.
    """
    begun = list[asyncio.Task[T]]()
    ended = SimpleQueue[_End[T]]()

    def over(task: asyncio.Task[T]) -> None:
        begun.clear()  # here, so that the task is let go of on its own thread
        if task.cancelled():
            ended.put((futures.CancelledError(), None))
        elif (error := task.exception()) is not None:
            ended.put((error, None))
        else:
            ended.put((None, task.result()))

    def begin() -> None:
        begun.append(loop.create_task(work))
        begun[0].add_done_callback(over)

    def cancel() -> None:
        for task in begun:
            task.cancel()

    try:
        loop.call_soon_threadsafe(begin)
        error, result = _wait_for(ended, timeout, check)
    except BaseException:
        # An interrupt of the waiting thread: nothing waits for the work any more.
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(cancel)
        raise
    if error is None:
        return cast("T", result)
    try:
        raise error
    finally:
        del error  # which has this very frame in its traceback


def _wait_for(ended: SimpleQueue[_End[T]], timeout: float | None, check: Callable[[], None] | None) -> _End[T]:
    while True:
        try:
            return ended.get(timeout=timeout if check is None else POLL_SECONDS)
        except Empty:
            if check is None:
                raise TimeoutError from None
            check()


def wait(app: App, work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine on the background loop, with the App open there, and wait for what it returns.

    :raises SyncInAsync: this thread has a running loop, which waiting here would stop; or this is a handler of signals
        that interrupted a submit of this very thread
    :raises Stopped: this is a handler's thread, and the handler should stop: the work is cancelled
    """
    refuse_in_loop(work)
    if threading.get_ident() in writing:
        work.close()
        raise SyncInAsync(
            "a handler of signals has interrupted a submit of this thread, and waiting for the store here would never"
            " end: note the signal in the handler, and act on it after it has returned"
        )
    background, ctx = _started(), Context._current_or_none()
    # A handler that should stop already does what it has to do on its way out.
    check = None if ctx is None or ctx.stopping is not None else ctx.check
    return background.run(background.inside(app, work), check=check)


def refuse_in_loop(work: Coroutine[Any, Any, Any]) -> None:
    """Refuse to wait on a thread with a running loop, which the waiting would stop; :raises SyncInAsync:"""
    if _has_loop():
        work.close()
        raise SyncInAsync("this thread has a running event loop: await the coroutine instead of blocking the loop")


def _has_loop() -> bool:
    return asyncio._get_running_loop() is not None  # no error is made and caught, as by the one without the mark


def session_of(app: App) -> Session | None:
    """The session of an App on the background loop, for a thread that may block; None: none, or it may not. It may be
    closed at any moment."""
    background = _background
    return None if background is None or _has_loop() else app._session_on(background.loop)


def is_here() -> bool:
    """Whether this is the thread of the background loop, on which callers' own connections have no business."""
    with _lock:
        return _background is not None and _background.is_here()


def leave(app: App) -> None:
    """Close an App that was opened for waiting, unless a caller waits; the next wait opens it again."""
    with _lock:
        background = _background
    # On the loop's own thread waiting for the loop would last for ever; and a caller there waits itself.
    if background is not None and not background.is_here():
        background.run(background.leave(app))


def _started() -> BackgroundLoop:
    global _background  # noqa: PLW0603 - the one loop of the process
    with _lock:
        if _background is None:
            _background = BackgroundLoop()
        return _background


def close() -> None:
    """Close the Apps opened for waiting and end the loop; the next wait makes a new one."""
    global _background
    with _lock:
        ending, _background = _background, None
    if ending is not None:
        ending.close()


def _after_fork() -> None:
    global _background, _lock  # noqa: PLW0603
    # The lock may have been held by a thread that does not exist here.
    _lock = threading.Lock()
    writing.clear()
    if _background is not None:
        _left_behind.append(_background)
        _background.forget()
        _background = None


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
