"""Tasks in child processes whose backoff is a function; in a module of their own, which the children import."""

from __future__ import annotations

import os
import signal

from headrace import App, Retry

app = App("memory://")


class Busy(Exception):
    """The far end said when to come again."""

    def __init__(self, after: float) -> None:
        super().__init__(f"busy for {after:g} s")
        self.after = after


def asked(retry: int, error: Exception) -> float:
    """What the error says; else by what kind of error it is."""
    return retry * 1000 + (error.after if isinstance(error, Busy) else len(type(error).__name__))


@app.task(run_in="process", retry=Retry(backoff=asked))
def busy(how: str) -> None:
    """Fail as told."""
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    raise Busy(7)
