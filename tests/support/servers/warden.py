"""Ends a server when the process that started it is gone, however that one went.

Run as `warden.py PARENT PIDFILE [FOLDER]`. The server is read from its pid file at the end, so that it may have been
restarted in between; the folder, if one is named, is removed after it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil  # type: ignore[import-untyped]

PATIENCE = 5.0
"""Seconds a server gets to leave by itself before it is killed."""


def main(parent: int, pidfile: Path, folder: Path | None) -> None:
    """Wait until this process has been given another parent, then end the server."""
    while os.getppid() == parent:
        time.sleep(0.1)
    try:
        family = tree(int(pidfile.read_text().split()[0]))
    except (OSError, ValueError, IndexError, psutil.NoSuchProcess):
        family = []
    # A frozen process hears nothing; a postmaster that is asked to leave at once takes its shared memory with it.
    tell(family, signal.SIGCONT)
    tell(family[:1], signal.SIGQUIT)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and any(alive(process) for process in family):
        time.sleep(0.01)
    tell(family, signal.SIGKILL)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def tree(pid: int) -> list[psutil.Process]:
    """A process and everything below it, the process first."""
    top = psutil.Process(pid)
    return [top, *top.children(recursive=True)]


def alive(process: psutil.Process) -> bool:
    """Whether a process still runs: one that is dead but that nobody has fetched yet does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def tell(processes: Iterable[psutil.Process], what: signal.Signals) -> None:
    """Send a signal to those that are still there."""
    for process in processes:
        try:
            process.send_signal(what)
        except psutil.NoSuchProcess:
            pass


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
