"""Child processes for CPU-bound handlers: one job at a time each, killed when time is up, replaced when they die.

Requests and answers travel as JSON over a pipe, never as pickles.
"""

from __future__ import annotations

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
from typing import Any

import msgspec

from headrace.core.job import ErrorInfo, Job, Progress
from headrace.core.outcome import Ending, Failed
from headrace.errors import HeadraceError
from headrace.handler import Handler
from headrace.worker.context import Context, Stopping
from headrace.worker.perform import perform

__all__ = ["Children"]


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


class _End(msgspec.Struct, tag="end"):
    """What the run came to."""

    ending: Ending


_encode = msgspec.json.encode
_to_child = msgspec.json.Decoder(_Run | _Stop)
_to_parent = msgspec.json.Decoder(_Report | _End)


class _Child:
    """The parent's end of one child."""

    def __init__(self) -> None:
        # Spawned, not forked: a fork would inherit threads' locks and open connections.
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_main, args=(theirs,), daemon=True, name="headrace-child")
        self.process.start()
        theirs.close()

    def run(self, request: _Run, report: Callable[[Progress], None]) -> Ending:
        """Hand over the job and wait for its end; the death of the child is a failed attempt."""
        try:
            self._pipe.send_bytes(_encode(request))
            while True:
                match _to_parent.decode(self._pipe.recv_bytes()):
                    case _Report(progress):
                        report(progress)
                    case _End(ending):
                        return ending
        except (EOFError, OSError):
            self.process.join(5)
            return Failed(error=ErrorInfo("ChildDied", _epitaph(self.process.exitcode)), names=("ChildDied",))

    def stop(self, why: Stopping) -> None:
        """Ask the handler to stop by itself."""
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(_encode(_Stop(why)))

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
    return f"the child process ended with exit code {exitcode}"


class Children:
    """The child processes of one worker; idle ones are used again."""

    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._busy: dict[Context, _Child] = {}
        self._lock = threading.Lock()
        self._closed = False

    def run(self, handler: Handler, ctx: Context, job: Job) -> Ending:
        """Run a job in a child and wait for its end; called on a thread."""
        request = _Run(handler.fn.__module__, handler.fn.__qualname__, job, ctx.attempt, ctx.started_at)
        with self._lock:
            child = self._idle.pop() if self._idle else None
        if child is None or not child.process.is_alive():
            child = _Child()
        with self._lock:
            self._busy[ctx] = child
        try:
            return child.run(request, ctx.report)
        finally:
            with self._lock:
                del self._busy[ctx]
                if child.process.is_alive() and not self._closed:
                    self._idle.append(child)
                else:
                    child.close()

    def stop(self, ctx: Context, why: Stopping) -> None:
        """Ask the handler of this run to stop by itself."""
        with self._lock:
            child = self._busy.get(ctx)
        if child is not None:
            child.stop(why)

    def kill(self, ctx: Context) -> None:
        """End this run now, with its process."""
        with self._lock:
            child = self._busy.get(ctx)
        if child is not None:
            child.kill()

    def close(self) -> None:
        """End every child."""
        with self._lock:
            self._closed = True
            idle, self._idle, busy = self._idle, [], list(self._busy.values())
        for child in idle:
            child.close()
        for child in busy:
            child.kill()


# -- in the child -------------------------------------------------------------------------------------------------


def _main(pipe: Connection) -> None:
    """Serve jobs until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means
    requests: SimpleQueue[_Run] = SimpleQueue()
    current: list[Context] = []
    lock = threading.Lock()

    def send(message: _Report | _End) -> None:
        with lock:
            pipe.send_bytes(_encode(message))

    def listen() -> None:
        try:
            while True:
                match _to_child.decode(pipe.recv_bytes()):
                    case _Run() as request:
                        requests.put(request)
                    case _Stop(why):
                        for ctx in current:
                            ctx.stopping = why
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone: whatever runs here belongs to nobody

    threading.Thread(target=listen, daemon=True).start()
    while True:
        request = requests.get()
        ctx = Context(
            request.job,
            attempt=request.attempt,
            started_at=request.started_at,
            report=lambda progress: send(_Report(progress)),
        )
        current[:] = [ctx]
        ending = _perform(request, ctx)
        current.clear()
        send(_End(ending))


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
