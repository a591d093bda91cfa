"""Child processes for CPU-bound handlers: one job at a time each, killed when time is up, replaced when they die."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable

from headrace.core.attempt import Ending, ErrorInfo, Failed, Released
from headrace.core.job import Job
from headrace.engine import Attended
from headrace.runtime.clock import SystemClock
from headrace.runtime.slot import Slot
from headrace.worker.execution.backoff import timed
from headrace.worker.execution.context import Context, Stopping
from headrace.worker.handler import Handler
from headrace.worker.log_capture import style_here
from headrace.worker.process.child import (
    NAME,
    UNGUARDED_EXIT_CODE,
    Act,
    Back,
    Descriptor,
    End,
    Go,
    Log,
    Report,
    Request,
    Sign,
    Stop,
    Yield,
    encode,
    serve,
    to_parent,
)

__all__ = ["ProcessPool"]

_DIED = ("ChildDied",)
_UNGUARDED = (
    "a process handler runs in a child process, which imports the script of its worker, and that opened the App again:"
    ' put what the script does, beside definitions, under `if __name__ == "__main__":`'
)


class _Child:
    """The parent's end of one child."""

    def __init__(self, attended: Attended | None = None) -> None:
        """``attended``: what is held for the worker, to be held by the child as well."""
        self.attended = attended
        self.killed = False
        """Whether the child was killed; its process may take a moment to end."""
        self._sending = threading.Lock()
        # Spawned, not forked: a fork would inherit threads' locks and open connections.
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        kept = None if attended is None or attended.descriptor is None else Descriptor(attended.descriptor)
        self.process = spawn.Process(target=serve, args=(theirs, kept, style_here()), daemon=True, name=NAME)
        self.process.start()
        theirs.close()

    def run(self, request: Request, ctx: Context) -> Ending:
        """Send the job to the child and wait for its end; if the child dies, the attempt has failed."""
        try:
            with self._sending:
                self._pipe.send_bytes(encode(request))
            if ctx.stopping is not None:
                self.stop(ctx.stopping)
            while True:
                match to_parent.decode(self._pipe.recv_bytes()):
                    case Act():
                        ctx._caller.acted()
                    case Report(progress):
                        ctx._caller.report(progress)
                    case Log(data):
                        ctx._caller.log(data)
                    case Sign():
                        ctx._caller.sign()
                    case Yield():
                        if (slot := ctx._caller.slot()) is not None:
                            slot.yield_slot()
                    case Back(number):
                        self._give_back(ctx._caller.slot(), number)
                    case End(ending, processing_time):
                        ctx._caller.took(processing_time)
                        return ending
        except (EOFError, OSError):
            self.process.join(5)
            return Failed(error=ErrorInfo("ChildDied", _epitaph(self.process.exitcode)), names=_DIED)

    def _give_back(self, slot: Slot | None, number: int) -> None:
        """Notify the child when there is a slot again."""

        def go(_: object = None) -> None:
            with self._sending, contextlib.suppress(OSError):
                self._pipe.send_bytes(encode(Go(number)))

        future = None if slot is None else slot.take_back()
        if future is None:
            go()
        else:
            future.add_done_callback(go)

    def stop(self, why: Stopping) -> None:
        """Request that the handler stops by itself; never waits."""
        # While a large job is being sent to a child that is still starting, this would block: ``run`` does it then.
        if self._sending.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    self._pipe.send_bytes(encode(Stop(why)))
            finally:
                self._sending.release()

    def kill(self) -> None:
        """End it now."""
        self.killed = True
        self.process.kill()

    def close(self) -> None:
        """Close the pipe, so that the child ends."""
        self._pipe.close()


def _epitaph(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        with contextlib.suppress(ValueError):
            return f"the child process was killed by {signal.Signals(-exitcode).name}"
    if exitcode == UNGUARDED_EXIT_CODE:
        return _UNGUARDED
    # What another script without the guard comes to: every child runs it from the top and stumbles.
    guard = ' (a script that starts workers needs `if __name__ == "__main__":`)' if exitcode == 1 else ""
    return f"the child process ended with exit code {exitcode}{guard}"


class _Post:
    """A run that has a child, or will when that is made."""

    child: _Child | None = None


class ProcessPool:
    """The child processes of one worker; idle ones are used again."""

    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._busy: dict[Context, _Post] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.attended: Callable[[], Attended | None] = lambda: None
        """What is held for the worker now: while a child runs on, the job that it has must not be given away."""

    def run(self, handler: Handler, ctx: Context, job: Job) -> Ending:
        """Run a job in a child and wait for its end; called on a thread."""
        post, done = _Post(), False
        with self._lock:
            self._busy[ctx] = post
        try:
            child = self._hire()
            with self._lock:
                post.child = child
                # Making a child takes a while: a stop that was requested meanwhile has not reached it.
                if self._closed or ctx.stopping is not None or self._busy.get(ctx) is not post:
                    done = True
                    return Released()
            left, begin_by = ctx._caller.begins_within(), None
            if left is not None:
                begin_by = SystemClock().monotonic() + left  # which a child reads on the same machine, alike
            fn = handler.fn
            at, trace = ctx.started_at, getattr(ctx, "_trace", None)
            request = Request(fn.__module__, fn.__qualname__, job, ctx.attempt, at, begin_by, trace)
            ending = child.run(request, ctx)
            done = True
            if isinstance(ending, Failed) and ending.names == _DIED:
                ending = timed(ending, handler, job)  # which the child itself did with any other error
            if left is not None and ctx.stopping is None and isinstance(ending, Released):
                ctx._caller.begins_within()  # it was late in the child: the lead is learned from that
            return ending
        finally:
            with self._lock:
                if self._busy.get(ctx) is post:  # otherwise the run was killed, and perhaps called again
                    del self._busy[ctx]
                if post.child is not None:
                    if not done:  # the child may still be running the job
                        post.child.kill()
                    self._dismiss(post.child)

    def _hire(self) -> _Child:
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            attended = self.attended()
            if child is None:
                # Once, and before multiprocessing waits for its children, which wait for their pipes.
                atexit.unregister(self.close)
                atexit.register(self.close)
                return _Child(attended)
            if child.process.is_alive() and child.attended == attended:
                return child
            child.close()

    def _dismiss(self, child: _Child) -> None:
        if child.process.is_alive() and not child.killed and not self._closed:
            self._idle.append(child)
        else:
            child.close()

    @property
    def pids(self) -> list[int]:
        """The processes there are, of idle children too."""
        with self._lock:
            children = [*self._idle, *(post.child for post in self._busy.values() if post.child is not None)]
        return [child.process.pid for child in children if child.process.pid is not None]

    # Both under the lock: a child that has gone on to the next job must not be stopped for the one before.

    def stop(self, ctx: Context, why: Stopping) -> None:
        """Request that the handler of this run stops by itself."""
        with self._lock:
            if (post := self._busy.get(ctx)) is not None and post.child is not None:
                post.child.stop(why)

    def kill(self, ctx: Context) -> None:
        """End this run now, with its process; one that is not begun yet will not be."""
        with self._lock:
            if (post := self._busy.pop(ctx, None)) is not None and post.child is not None:
                post.child.kill()

    def close(self) -> None:
        """End every child."""
        with self._lock:
            self._closed = True
            atexit.unregister(self.close)
            idle, self._idle, busy = self._idle, [], [post.child for post in self._busy.values()]
        for child in idle:
            child.close()
        for one in busy:
            if one is not None:
                one.kill()
