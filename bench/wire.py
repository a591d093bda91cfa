"""What the child processes of the benchmark say and hear: a line of JSON out, a word in."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["TICK", "await_word", "report", "say"]

TICK = 0.005
"""Seconds between two looks at how far a worker is."""


def say(**facts: Any) -> None:
    """Tell the harness."""
    print(json.dumps(facts), flush=True)


def await_word() -> None:
    """Wait until the harness lets this process go on."""
    if not sys.stdin.readline():
        sys.exit("the harness is gone")


def report(done: Callable[[], int], waits: Sequence[float] = ()) -> None:
    """Say how many jobs are over whenever that changes, until the harness says a word; then say the waits."""
    word = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        word.set()

    threading.Thread(target=listen, daemon=True).start()
    said = 0
    while not word.wait(TICK):
        if (count := done()) != said:
            say(done=count, at=time.time())
            said = count
    say(waits=list(waits))
