"""Processes of examples, for tests."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["answering", "started"]


@contextmanager
def started(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process, with its output in a file of its own, killed at the end."""
    with (
        (folder / f"{len(list(folder.glob('*.log')))}.log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def answering(process: subprocess.Popen[bytes], address: str) -> None:
    """Return when a server answers there, whatever it says."""
    deadline = time.monotonic() + 120
    while True:
        assert process.poll() is None, "the server has ended"
        assert time.monotonic() < deadline
        try:
            urllib.request.urlopen(address, timeout=30).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
