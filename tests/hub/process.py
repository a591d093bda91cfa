"""A hub in a process of its own, on a real port, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.patience import until_sync
from tests.support.forks import HEADRACE, Command

__all__ = ["Running", "started"]


class Running:
    """A hub, or what contains one, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """``process``: a command with ``--port 0 --json``."""
        self.process = process
        assert self.process.stdout is not None
        self.events: list[dict[str, Any]] = []
        self.address = str(self.next("started")["url"])
        self.log = ""
        """What it says on stderr; all of it once it has ended."""
        # So that a full pipe does not hold it up.
        self._rest = [threading.Thread(target=one, daemon=True) for one in (self._keep, self._keep_log)]
        for thread in self._rest:
            thread.start()

    def next(self, event: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if self.events[-1]["event"] == event:
                return self.events[-1]
        raise AssertionError(f"it ended without {event}: {self.process.communicate()[1]}")

    def _keep(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def _keep_log(self) -> None:
        for line in self.process.stderr or ():
            self.log += line

    def get(self, path: str, **more: Any) -> Any:
        with urllib.request.urlopen(self.address + path, timeout=30, **more) as answer:
            return json.loads(answer.read())

    def until_ready(self) -> None:
        until_sync(self._is_ready)

    def _is_ready(self) -> bool:
        try:
            return bool(self.get("/readyz")["status"] == "ready")
        except (OSError, urllib.error.HTTPError):
            return False

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.wait(60)
        self.until_read()
        return self.process.returncode

    def until_read(self) -> None:
        """Wait until all that it said is read, once it has ended."""
        for thread in self._rest:
            thread.join(10)


@contextmanager
def started(
    folder: Path, *words: str, port: int = 0, environment: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """A command that contains a hub, started in this folder, that is ready; it must stop in good order at the end,
    unless it was killed by then. ``port``: which one; 0 is any. ``environment``: settings."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    process = Command(
        [*HEADRACE, *words, "--port", str(port), "--json"],
        cwd=folder,
        env=clean | dict(environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    running = None
    try:
        running = Running(process)
        running.until_ready()
        yield running
        if process.poll() is None:
            assert running.end() == 0, "it stops in good order"
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if running is not None:
            running.until_read()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
