"""Commands in processes of their own that need not import headrace: forks of a process that has.

`Command` is ``subprocess.Popen`` of ``python -m headrace …``, but for that: a third of a second of processor time each.
What they fork from opens no App and has no other thread and no loop. Tests about how a process starts, and about
signals while it does, start one in the ordinary way. So does `Command` where a fork would differ: if the environment
has another language or other settings of Python, or is not that of POSIX.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import inspect
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

__all__ = ["HEADRACE", "Command", "import_all", "run"]

HEADRACE = (sys.executable, "-m", "headrace")
"""How a command begins."""

NOT_IMPORTED = (
    *("headrace.conformance", "headrace.contrib", "headrace.endpoints", "headrace.testing"),
    "headrace.cli.demo",  # it changes what is logged
)
"""What no command needs, or only one that imports it."""

FIRST = ("PYTHON", "LC_", "LANG")
"""The beginnings of variables that count when an interpreter starts."""

_length = struct.Struct("!I")
_lock = threading.Lock()


class Command(subprocess.Popen[Any]):
    """A process with a command of headrace, started as a fork if it can be."""

    _ended: int | None = None
    """Where the exit status comes from; None: from the system, since this process is the parent."""

    # What is overridden is where Popen starts a process and where it looks whether it ended.

    def _execute_child(self, *given: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]  # it is not public
        named = inspect.signature(start).bind(*given).arguments
        environment = os.environ if named["env"] is None else named["env"]
        words = list(named["args"])
        if tuple(words[:3]) != HEADRACE or not _can_fork(named, environment):
            start(*given)
            return
        pipes = [named["p2cread"], named["c2pwrite"], named["errwrite"]]
        ended, end = os.pipe()
        try:
            ask = {
                "words": words[3:],
                "folder": os.path.abspath(named["cwd"] or "."),
                "environment": dict(environment),
                "session": named["start_new_session"],
            }
            self.pid = _forked(ask, [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)], end)
        finally:
            os.close(end)
            names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(named[name] for name in names))  # type: ignore[attr-defined]  # not public either
        self._ended = ended
        self._child_created = True

    def _internal_poll(self, *rest: Any, **more: Any) -> int | None:
        if self._ended is None:
            return super()._internal_poll(*rest, **more)  # type: ignore[misc,no-any-return]
        if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
            self._take()
        return self.returncode

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._ended is None:
            return super()._try_wait(flags)  # type: ignore[misc,no-any-return]
        if self.returncode is None and (not flags or select.select([self._ended], [], [], 0)[0]):
            self._take()
        return (0, 0) if self.returncode is None else (self.pid, self._status)

    def _take(self) -> None:
        assert self._ended is not None
        (self._status,) = _length.unpack(os.read(self._ended, _length.size))
        os.close(self._ended)
        self.returncode = os.waitstatus_to_exitcode(self._status)


def run(*words: str, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """What ``subprocess.run`` says of such a command, with all that it prints."""
    command, options = [*HEADRACE, *words], options | {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    timeout = options.pop("timeout", 60)
    with Command(command, text=True, **options) as process:
        try:
            said, log = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, said, log)
    if check:
        done.check_returncode()
    return done


def _can_fork(named: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    plain = not (named["preexec_fn"] or named["pass_fds"] or named["shell"] or named["executable"])
    return plain and hasattr(os, "fork") and _first(environment) == _first(os.environ)


def _first(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environment.items() if name.startswith(FIRST) and name != "PYTHONPATH" and value
    }


def _forked(ask: Mapping[str, Any], files: Sequence[int], end: int) -> int:
    """The process id of a fork with these files as its first three; its status is written to ``end``."""
    said = json.dumps(ask).encode()
    with _lock:
        server = _server()
        socket.send_fds(server, [_length.pack(len(said))], [*files, end])
        server.sendall(said)
        (pid,) = _length.unpack(server.recv(_length.size, socket.MSG_WAITALL))
    return int(pid)


@functools.cache
def _server() -> socket.socket:
    """What forks, started when it is first needed; it ends when this process does."""
    here, there = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, __file__, str(there.fileno())],
        pass_fds=[there.fileno()],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    there.close()

    def close() -> None:
        here.close()
        process.wait(60)

    atexit.register(close)
    return here


# In the process that forks


def _serve(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request; what one asked for, in the fork, and its files. It does not return anywhere else."""
    children = dict[int, int]()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            for pid, status in _over():
                end = children.pop(pid)
                try:
                    os.write(end, _length.pack(status))
                except BrokenPipeError:  # nobody waits for it any more
                    pass
                os.close(end)
        if control.fileno() in ready:
            head, files, _, _ = socket.recv_fds(control, _length.size, 4)
            if not head:  # the tests are over, and nobody is left to end what a failed one has forgotten
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                raise SystemExit
            said = control.recv(_length.unpack(head)[0], socket.MSG_WAITALL)
            *standard, end = files
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return json.loads(said), standard
            for file in standard:
                os.close(file)
            children[pid] = end
            control.sendall(_length.pack(pid))


def _over() -> Iterator[tuple[int, int]]:
    """The forks that have ended, and how."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, status


def _become(ask: Mapping[str, Any], files: Sequence[int]) -> None:
    """Make this fork what ``python -m headrace`` is when it begins."""
    if ask["session"]:
        os.setsid()
    high = [os.dup(file) for file in files]  # above the three, of which they may be some
    for number, file in enumerate(high):
        os.dup2(file, number)
    os.closerange(3, 1024)
    os.chdir(ask["folder"])
    os.environ.clear()
    os.environ.update(ask["environment"])
    time.tzset()
    given = [place for place in ask["environment"].get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[:] = [ask["folder"], *given, *(place for place in sys.path if place not in given)]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        mode = "w" if number else "r"
        buffered = open(number, f"{mode}b", closefd=False)  # noqa: SIM115
        lines = number == 2 or os.isatty(number)
        text = io.TextIOWrapper(buffered, encoding=old.encoding, errors=old.errors, line_buffering=lines)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
    sys.argv[1:] = ask["words"]


def import_all() -> None:
    """Import all that a command may need, and spare forks of this process from copying it when garbage is collected."""
    import headrace
    from headrace import cli

    functions = {name: getattr(cli, name) for name in cli.__all__}
    for found in pkgutil.walk_packages(headrace.__path__, "headrace."):
        name = found.name
        if not name.startswith(NOT_IMPORTED) and not name.endswith("__"):
            importlib.import_module(name)
    for name, function in functions.items():  # and not a module of that name, which is an attribute since its import
        setattr(cli, name, function)
    gc.collect()
    gc.freeze()


def _main() -> NoReturn:
    control = socket.socket(fileno=int(sys.argv[1]))
    del sys.path[0]  # the folder of this file
    import_all()
    assert threading.active_count() == 1, threading.enumerate()
    _become(*_serve(control))
    control.detach()
    try:
        runpy.run_module("headrace", run_name="__main__", alter_sys=True)
        code: object = None
    except SystemExit as ending:
        code = ending.code
    _leave(code)


def _leave(code: object) -> NoReturn:
    """End as an interpreter does, but for taking apart all that was imported, which a fork would have to copy first."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)  # noqa: T201 - as an interpreter does
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    _main()
