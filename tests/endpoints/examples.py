"""Examples, started as their first lines say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers.daemons import free_port

__all__ = ["running"]

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def running(name: str, service: str, folder: Path) -> Iterator[str]:
    """An example that serves, in a folder of its own; its address."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", service, "--port", str(port), "--timeout-graceful-shutdown", "1"]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES / name)}
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + 120
            while not _listens(port):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _listens(port: int) -> bool:
    """Whether the server has started: it listens when its lifespan has begun."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except OSError:
        return False
    return True
