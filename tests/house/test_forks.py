"""A command that runs as a fork is what ``python -m headrace`` would be."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forks import HEADRACE, Command, run
from tests.support.until import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")

APP = """
import os, sys, threading
from headrace import App

print(os.getcwd(), sys.argv[1:], os.environ.get("HEADRACE_NOTE"), threading.active_count(), flush=True)
app = App("memory://")


@app.task  # without one a worker ends by itself
def nothing() -> None: ...
"""


def test_it_says_and_ends_as_a_process_does(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(APP)
    words = ["tasks", "--app", "mine:app"]
    environment = {"PATH": "", "HEADRACE_NOTE": "here"}
    fork = run(*words, cwd=tmp_path, env=environment)
    process = subprocess.run(
        [*HEADRACE, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (fork.returncode, fork.stdout, fork.stderr) == (process.returncode, process.stdout, process.stderr)
    assert fork.stdout.startswith(f"{tmp_path.resolve()} {words} here 1\n")
    assert run("tasks", "--no-such-option").returncode == 2


def test_its_files_stay_those_of_whoever_gave_them(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        for _ in range(2):
            process = Command([*HEADRACE, "--version"], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            assert process.wait(60) == 0
    assert (tmp_path / "log").read_text().count("headrace") == 2


async def test_it_is_killed_as_a_process_is(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(APP)
    pipe = subprocess.PIPE
    command = [*HEADRACE, "worker", "mine:app"]
    with Command(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert process.poll() is None
        process.kill()
        await until(lambda: process.poll() is not None)
        assert process.returncode == -signal.SIGKILL
