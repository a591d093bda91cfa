"""The child processes of the benchmark, as the harness sees them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

__all__ = ["BrokenDown", "Child", "ask", "child"]

ROOT = Path(__file__).parent.parent
PATIENCE = 180.0
"""Seconds after which a child counts as stuck."""


class BrokenDown(Exception):
    """A child process ended, or got stuck, before it had said what it was asked."""


class Child:
    """One process."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process, self._name = process, name

    def hear(self) -> dict[str, Any]:
        """Its next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BrokenDown(f"{self._name}: no answer, exit code {self._process.wait()}")
        facts: dict[str, Any] = json.loads(line)
        return facts

    def tell(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BrokenDown(f"{self._name}: gone, exit code {self._process.wait()}") from None

    def rss(self) -> float:
        """Its resident memory in MB."""
        return float(psutil.Process(self._process.pid).memory_info().rss) / 1e6


@contextmanager
def child(module: str, *args: object) -> Iterator[Child]:
    """Run ``python -m module args``; it is gone when this is left."""
    words = [str(arg) for arg in args]
    process = subprocess.Popen(
        [sys.executable, "-m", module, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    try:
        yield Child(process, " ".join([module, *words]))
        process.communicate(timeout=60)
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def ask(*args: object) -> Any:
    """Run a client and return its answer."""
    with child("bench.client", *args) as client:
        return client.hear()["answer"]
