"""What the child processes of the benchmark say and hear: a line of JSON out, a word in."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["await_word", "say"]


def say(**facts: Any) -> None:
    """Tell the harness."""
    print(json.dumps(facts), flush=True)


def await_word() -> None:
    """Wait until the harness lets this process go on."""
    if not sys.stdin.readline():
        sys.exit("the harness is gone")
