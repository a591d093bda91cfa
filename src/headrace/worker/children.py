"""Child processes for CPU-bound handlers: one job at a time each, killed when time is up, replaced when they die.

Requests and answers travel as JSON over a pipe, never as pickles.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec

from headrace.core.job import ErrorInfo, Job, Progress
from headrace.core.outcome import Ending, Failed, Released
from headrace.errors import HeadraceError, NotSupported
from headrace.handler import Handler
from headrace.worker.context import Context, Stopping, Voice
from headrace.worker.logs import caught_logs
from headrace.worker.perform import perform
from headrace.worker.resources import Resource
from headrace.worker.scribe import Scribe

__all__ = ["Children"]

T = TypeVar("T")


class _Run(msgspec.Struct, tag="run"):
    """Do this job."""

    module: str
    name: str
    job: Job
    attempt: int
    started_at: datetime


class _Stop(msgspec.Struct, tag="stop"):
    """The job you are at should stop."""

    why: Stopping


class _Report(msgspec.Struct, tag="report"):
    """How far the job is."""

    progress: Progress


class _Log(msgspec.Struct, tag="log"):
    """A line for the log of the job."""

    data: str


class _End(msgspec.Struct, tag="end"):
    """What the run came to."""

    ending: Ending


_encode = msgspec.json.encode
_to_child = msgspec.json.Decoder(_Run | _Stop)
_to_parent = msgspec.json.Decoder(_Report | _Log | _End)


class _Child:
    """The parent's end of one child."""

    def __init__(self) -> None:
        self._sending = threading.Lock()
        # Spawned, not forked: a fork would inherit threads' locks and open connections.
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_main, args=(theirs,), daemon=True, name="headrace-child")
        self.process.start()
        theirs.close()

    def run(self, request: _Run, ctx: Context) -> Ending:
        """Hand over the job and wait for its end; the death of the child is a failed attempt."""
        try:
            with self._sending:
                self._pipe.send_bytes(_encode(request))
            if ctx.stopping is not None:
                self.stop(ctx.stopping)
            while True:
                match _to_parent.decode(self._pipe.recv_bytes()):
                    case _Report(progress):
                        ctx.voice.report(progress)
                    case _Log(data):
                        ctx.voice.log(data)
                    case _End(ending):
                        return ending
        except (EOFError, OSError):
            self.process.join(5)
            return Failed(error=ErrorInfo("ChildDied", _epitaph(self.process.exitcode)), names=("ChildDied",))

    def stop(self, why: Stopping) -> None:
        """Ask the handler to stop by itself; never waits."""
        # While a large job is being sent to a child that is still starting, asking would block: ``run`` does it then.
        if self._sending.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    self._pipe.send_bytes(_encode(_Stop(why)))
            finally:
                self._sending.release()

    def kill(self) -> None:
        """End it now."""
        self.process.kill()

    def close(self) -> None:
        """Let it go: it ends when its pipe does."""
        self._pipe.close()


def _epitaph(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        with contextlib.suppress(ValueError):
            return f"the child process was killed by {signal.Signals(-exitcode).name}"
    # What a script without the guard comes to: every child runs it from the top and stumbles.
    guard = ' (a script that starts workers needs `if __name__ == "__main__":`)' if exitcode == 1 else ""
    return f"the child process ended with exit code {exitcode}{guard}"


class Children:
    """The child processes of one worker; idle ones are used again."""

    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._busy: dict[Context, _Child] = {}
        self._lock = threading.Lock()
        self._closed = self._at_exit = False

    def run(self, handler: Handler, ctx: Context, job: Job) -> Ending:
        """Run a job in a child and wait for its end; called on a thread."""
        request = _Run(handler.fn.__module__, handler.fn.__qualname__, job, ctx.attempt, ctx.started_at)
        child, done = self._hire(), False
        with self._lock:
            # Making a child takes its time: what was asked of the run meanwhile found nobody to ask.
            if self._closed or ctx.stopping is not None:
                self._dismiss(child)
                return Released()
            self._busy[ctx] = child
        try:
            ending = child.run(request, ctx)
            done = True
            return ending
        finally:
            with self._lock:
                del self._busy[ctx]
                if not done:  # it may be at the job still
                    child.kill()
                self._dismiss(child)

    def _hire(self) -> _Child:
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                self._close_at_exit()
                return _Child()
            if child.process.is_alive():
                return child
            child.close()

    def _close_at_exit(self) -> None:
        # Before multiprocessing waits for its children, which wait for their pipes.
        with self._lock:
            if not self._at_exit:
                self._at_exit = True
                atexit.register(self.close)

    def _dismiss(self, child: _Child) -> None:
        if child.process.is_alive() and not self._closed:
            self._idle.append(child)
        else:
            child.close()

    # Both under the lock: a child that has gone on to the next job must not be stopped for the one before.

    def stop(self, ctx: Context, why: Stopping) -> None:
        """Ask the handler of this run to stop by itself."""
        with self._lock:
            if ctx in self._busy:
                self._busy[ctx].stop(why)

    def kill(self, ctx: Context) -> None:
        """End this run now, with its process."""
        with self._lock:
            if ctx in self._busy:
                self._busy[ctx].kill()

    def close(self) -> None:
        """End every child."""
        with self._lock:
            self._closed = True
            atexit.unregister(self.close)
            idle, self._idle, busy = self._idle, [], list(self._busy.values())
        for child in idle:
            child.close()
        for child in busy:
            child.kill()


# -- in the child -------------------------------------------------------------------------------------------------


def _main(pipe: Connection) -> None:
    """Serve jobs until the parent is gone."""
    # Ctrl-C reaches the whole group, and service managers send SIGTERM to all: the parent decides what they mean. Not
    # ignored, which programs started by a handler would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    requests: SimpleQueue[tuple[_Run, Context]] = SimpleQueue()
    current: list[Context] = []
    lock = threading.Lock()

    def send(message: _Report | _Log | _End) -> None:
        with lock:
            pipe.send_bytes(_encode(message))

    def listen() -> None:
        try:
            while True:
                match _to_child.decode(pipe.recv_bytes()):
                    case _Run() as request:
                        # Made here, so that a stop right behind it finds what to stop.
                        current[:] = [Context(request.job, request.attempt, request.started_at, _Piped(send))]
                        requests.put((request, current[0]))
                    case _Stop(why):
                        for ctx in current:
                            ctx.stopping = why
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone: whatever runs here belongs to nobody

    threading.Thread(target=listen, daemon=True).start()
    with caught_logs():
        while True:
            send(_End(_perform(*requests.get())))


class _Piped(Voice):
    """Heard by the parent."""

    def __init__(self, send: Callable[[_Report | _Log], None]) -> None:
        self._send = send

    def report(self, report: Progress) -> None:
        self._send(_Report(report))

    def log(self, data: str) -> None:
        self._send(_Log(data))

    def scribe(self) -> Scribe | None:
        raise NotSupported(
            "steps are written by the worker, and this handler runs in a child of it"
            ' (run_in="process"): leave run_in out'
        )

    def resource(self, resource: Resource[T]) -> T:
        raise NotSupported(
            f"resource {resource.name!r} is open in the worker's process, and this handler runs in a child of it"
            ' (run_in="process"): make there what it needs, or leave run_in out'
        )


def _perform(request: _Run, ctx: Context) -> Ending:
    try:
        handler = _find(request.module, request.name)
    except Exception as error:
        message = f"the child process cannot import {request.module}:{request.name}: {type(error).__name__}: {error}"
        return Failed(error=ErrorInfo("ImportError", message), names=("ImportError",))
    return perform(handler, ctx, request.job)


def _find(module: str, name: str) -> Handler:
    found: Any = sys.modules["__main__"] if module == "__main__" else importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    handler = getattr(found, "handler", None)
    if isinstance(handler, Handler):
        return handler
    raise HeadraceError(f"{module}:{name} is not a task there; decorate the function where it is defined")
