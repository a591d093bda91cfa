"""A child process: runs the jobs that its worker sends, one at a time, and the messages between the two.

Everything travels as JSON over a pipe, never as pickles.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime
from multiprocessing import reduction
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec

from headrace.core.attempt import Ending, ErrorInfo, Failed, Progress
from headrace.core.job import Job
from headrace.errors import HeadraceError, NotSupported
from headrace.runtime.clock import SystemClock
from headrace.worker.execution.call import perform
from headrace.worker.execution.context import Caller, Context, Stopping
from headrace.worker.execution.errors import message_of
from headrace.worker.execution.resources import Resource
from headrace.worker.execution.writers import EntryWriter
from headrace.worker.handler import Handler
from headrace.worker.log_capture import Style, caught_logs, shown_logs

__all__ = [
    "NAME",
    "UNGUARDED_EXIT_CODE",
    "Act",
    "Back",
    "Descriptor",
    "End",
    "Go",
    "Log",
    "Report",
    "Request",
    "Sign",
    "Stop",
    "Yield",
    "encode",
    "end_if_unguarded",
    "serve",
    "to_parent",
]

T = TypeVar("T")

NAME = "headrace-child"
UNGUARDED_EXIT_CODE = 78
"""How a child ends whose script opens an App, or starts a worker, while it is imported."""
_SIGN_SECONDS = 0.05
"""Seconds between two signs that are sent."""


class Request(msgspec.Struct, tag="request"):
    """To the child: run this job."""

    module: str
    name: str
    job: Job
    attempt: int
    started_at: datetime
    begin_by: float | None = None
    """By when its handler is called (monotonic), or not at all."""
    trace: dict[str, str] | None = None
    """The span of the run, if it has one."""


class Stop(msgspec.Struct, tag="stop"):
    """To the child: the job that it runs should stop."""

    why: Stopping


class Go(msgspec.Struct, tag="go"):
    """To the child: its job has a slot again."""

    number: int


class Yield(msgspec.Struct, tag="yield"):
    """To the worker: the job waits for another, and yields its slot meanwhile."""


class Back(msgspec.Struct, tag="back"):
    """To the worker: the job waits no longer, and wants a slot."""

    number: int


class Act(msgspec.Struct, tag="act"):
    """To the worker: the job did something that others can see."""


class Report(msgspec.Struct, tag="report"):
    """To the worker: the progress of the job."""

    progress: Progress


class Log(msgspec.Struct, tag="log"):
    """To the worker: a line for the log of the job."""

    data: str


class Sign(msgspec.Struct, tag="sign"):
    """To the worker: the job is at work."""


class End(msgspec.Struct, tag="end"):
    """To the worker: how the run ended."""

    ending: Ending
    processing_time: float


encode = msgspec.json.encode
to_child = msgspec.json.Decoder(Request | Stop | Go)
to_parent = msgspec.json.Decoder(Act | Report | Log | Sign | Yield | Back | End)


class Descriptor:
    """A file descriptor that goes along to a child process; there, it is the number that the file has."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (reduction.DupFd(self._number),)


def _arrived(sent: Any) -> int:
    number: int = sent.detach()
    os.set_inheritable(number, False)  # what a handler starts must not hold it
    return number


def end_if_unguarded() -> None:
    """End this process if it is a child that still imports the script of its worker: the script would do in it all that
    it has done in the worker, start a worker included, whose children would do it again."""
    process = multiprocessing.current_process()
    if process.name == NAME and getattr(process, "_inheriting", False):
        os._exit(UNGUARDED_EXIT_CODE)


def serve(pipe: Connection, held: object = None, style: Style | None = None) -> None:
    """Serve jobs until the parent is gone; ``held``: a descriptor that stays open as long as this process lives.
    ``style``: how the parent shows what is logged, if that is its business."""
    # Ctrl-C reaches the whole group, and service managers send SIGTERM to all: the parent decides what they mean. Not
    # ignored, which programs started by a handler would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    requests: SimpleQueue[tuple[Request, Context, _Piped]] = SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, requests), daemon=True).start()
    clock = SystemClock()
    with caught_logs(), shown_logs(style):
        while True:
            request, ctx, caller = requests.get()
            began = clock.monotonic()
            ending = _perform(request, ctx)
            caller.end(ending, clock.monotonic() - began)


def _listen(pipe: Connection, requests: SimpleQueue[tuple[Request, Context, _Piped]]) -> None:
    """Receive messages of the parent, also while a handler runs."""
    ctx: Context | None = None
    caller: _Piped | None = None
    lock = threading.Lock()
    try:
        while True:
            match to_child.decode(pipe.recv_bytes()):
                case Request() as request:
                    # Made here, so that a stop right behind it finds what to stop.
                    caller = _Piped(pipe, lock, request.begin_by)
                    ctx = Context(request.job, request.attempt, request.started_at, caller)
                    if request.trace is not None:
                        ctx._trace = request.trace
                    requests.put((request, ctx, caller))
                case Stop(why):
                    if ctx is not None:
                        ctx.stopping = why
                case Go(number):
                    if caller is not None:
                        caller.slot().go(number)
    except (EOFError, OSError):
        os._exit(0)  # the parent is gone, and no worker owns the job that runs here


class _Piped(Caller):
    """Sends to the parent until the job ends: what the job left behind must not speak for the next."""

    def __init__(self, pipe: Connection, lock: threading.Lock, begin_by: float | None) -> None:
        """``lock``: to be held while writing to the pipe."""
        self._pipe, self._lock, self._begin_by = pipe, lock, begin_by
        self._slot = _Slot(self._send)
        self._acted = self._over = False
        self._sign_at = 0.0

    def _send(self, message: Act | Report | Log | Sign | Yield | Back | End) -> None:
        with self._lock:
            if not self._over:
                self._over = isinstance(message, End)
                self._pipe.send_bytes(encode(message))

    def end(self, ending: Ending, processing_time: float) -> None:
        """Send how the run ended, as the last message."""
        self._slot.close()
        self._send(End(ending, processing_time))

    def slot(self) -> _Slot:
        return self._slot

    def begins_within(self) -> float | None:
        return None if self._begin_by is None else self._begin_by - SystemClock().monotonic()

    def acted(self) -> None:
        if not self._acted:  # the start is recorded once
            self._acted = True
            self._send(Act())

    def report(self, report: Progress) -> None:
        self._send(Report(report))

    def log(self, data: str) -> None:
        self._send(Log(data))

    def sign(self) -> None:
        if (now := SystemClock().monotonic()) >= self._sign_at:
            self._sign_at = now + _SIGN_SECONDS
            self._send(Sign())

    def entry_writer(self) -> EntryWriter | None:
        raise NotSupported(
            "steps are written by the worker, and this handler runs in a child of it"
            ' (run_in="process"): leave run_in out'
        )

    def resource(self, resource: Resource[T]) -> T:
        raise NotSupported(
            f"resource {resource.name!r} is open in the worker's process, and this handler runs in a child of it"
            ' (run_in="process"): make there what it needs, or leave run_in out'
        )


class _Slot:
    """The slot of the run, as the child sees it: the worker yields it and gives it back on request."""

    stopping = False
    """The worker knows, and lets a handler that is to stop go on at once."""

    def __init__(self, send: Callable[[Yield | Back], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._waits = self._number = 0
        self._over = False
        self._back: Future[None] | None = None

    def yield_slot(self) -> None:
        with self._lock:
            self._waits += 1
            if self._waits == 1 and not self._over:
                self._settle()
                self._send(Yield())

    def take_back(self) -> Future[None] | None:
        with self._lock:
            self._waits -= 1
            if self._waits or self._over:
                return None
            self._number += 1
            self._back = future = Future[None]()
            self._send(Back(self._number))
            return future

    def seize(self) -> None:
        with self._lock:
            self._settle()

    def go(self, number: int) -> None:
        with self._lock:
            if number == self._number:  # otherwise the job has begun another wait since
                self._settle()

    def close(self) -> None:
        """End with the run: what it left behind has nothing to do with the next."""
        with self._lock:
            self._over = True
            self._settle()

    def _settle(self) -> None:
        back, self._back = self._back, None
        if back is not None and not back.cancelled():
            back.set_result(None)


def _perform(request: Request, ctx: Context) -> Ending:
    try:
        handler = _find(request.module, request.name)
    except BaseException as error:  # a module may as well call sys.exit()
        what = f"{type(error).__name__}: {message_of(error)}"
        message = f"the child process cannot import {request.module}:{request.name}: {what}"
        return Failed(error=ErrorInfo("ImportError", message), names=("ImportError",))
    if request.trace is None or handler.tracing is None:
        return perform(handler, ctx, request.job)
    with handler.tracing.within(request.trace):
        return perform(handler, ctx, request.job)


def _find(module: str, name: str) -> Handler:
    found: Any = sys.modules["__main__"] if module == "__main__" else importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    handler = getattr(found, "handler", None)
    if isinstance(handler, Handler):
        return handler
    raise HeadraceError(f"{module}:{name} is not a task there; decorate the function where it is defined")
