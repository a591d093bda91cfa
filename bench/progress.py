"""A line on standard error that says what is going on, because people wait."""

from __future__ import annotations

import sys
import time

__all__ = ["Progress"]


class Progress:
    """So many steps, one line."""

    def __init__(self, steps: int) -> None:
        self._steps, self._step, self._began = steps, 0, time.monotonic()
        self._terminal = sys.stderr.isatty()

    def step(self, what: str) -> None:
        """The next step begins."""
        self._step += 1
        line = f"[{self._step}/{self._steps}] {time.monotonic() - self._began:4.0f} s  {what}"
        if self._terminal:
            sys.stderr.write(f"\r\033[K{line}")
        else:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def done(self) -> None:
        """Clear the line."""
        if self._terminal:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
