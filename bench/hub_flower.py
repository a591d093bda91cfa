"""A peer of the hub: Celery, for which flower takes tasks over HTTP; Redis keeps them, on disk before it answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.children import BrokenDown
from bench.hub_load import post
from bench.programs import Missing, environment
from headrace.hub.server.server import listen

__all__ = ["SUBMIT", "facts", "flower"]

PACKAGES = ("celery==5.7.0", "redis==8.1.0", "flower==2.2.0", "packaging")
REDIS = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
SUBMIT = post("/api/task/send-task/noop", {"args": [1]})
PATIENCE = 60.0


def facts() -> str:
    """What it is, and how it is set; :raises Missing: it cannot run here"""
    _, redis = _programs()
    said = subprocess.run([redis, "--version"], check=True, capture_output=True, text=True).stdout
    versions = [one.replace("==", " ") for one in PACKAGES if "==" in one]
    return f"{', '.join(versions)}; Redis {said.partition('v=')[2].split()[0]}, appendonly, appendfsync always"


def _programs() -> tuple[Path, str]:
    redis = shutil.which("redis-server")
    if redis is None:
        raise Missing("no redis-server on the path")
    return environment("flower", PACKAGES), redis


@contextmanager
def flower() -> Iterator[str]:
    """Where it listens, until the block ends; :raises Missing: it cannot run here"""
    python, redis = _programs()
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    with ExitStack() as stack:
        home = stack.enter_context(TemporaryDirectory(prefix="flower-"))
        place = f"{home}/redis.sock"
        _start(stack, [redis, "--port", "0", "--unixsocket", place, "--dir", home, *REDIS], home)
        broker = f"redis+socket://{place}"
        words = ["--broker", broker, "flower", "--address=127.0.0.1", f"--port={port}", "--logging=error"]
        _start(stack, [str(python.parent / "celery"), *words], home)
        address = f"http://127.0.0.1:{port}"
        _until_up(address)
        yield address


def _start(stack: ExitStack, command: list[str], home: str) -> None:
    # Without a password flower takes tasks from nobody, unless told to.
    process = subprocess.Popen(
        command,
        cwd=home,
        env={"PATH": os.environ["PATH"], "FLOWER_UNAUTHENTICATED_API": "true"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)


def _until_up(address: str) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"{address}/healthcheck", timeout=5):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
    raise BrokenDown("flower did not come up")
