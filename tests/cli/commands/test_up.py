"""The up command as a real process: a hub and a worker, started and stopped together."""

from __future__ import annotations

import signal
import sys
import urllib.request

import pytest

from tests.cli.commands.test_hub import running
from tests.cli.conftest import Shell
from tests.cli.patience import until_sync

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(240),
]


def status_of(shell: Shell, id: str) -> str:
    return str(shell.json("show", id, "--url", shell.url)["status"])


def test_jobs_are_run_and_requests_answered(shell: Shell) -> None:
    both = running(shell, "up", "quick:app")
    both.until_ready()
    assert "worker" in both.get("/healthz")["loops"]
    with urllib.request.urlopen(both.address, timeout=60) as answer:
        assert "<title>Overview" in answer.read().decode(), "the dashboard"
    id = shell.submit("add", "a=1")
    until_sync(lambda: status_of(shell, id) == "completed")
    assert both.end() == 0
    assert both.events[-1]["done"] == 1
    assert shell.json("workers", "--url", shell.url) == []


def test_one_signal_lets_jobs_finish(shell: Shell) -> None:
    both = running(shell, "up", "quick:app")
    id = shell.submit("slow")
    until_sync(lambda: status_of(shell, id) == "running")
    both.process.send_signal(signal.SIGINT)
    until_sync(lambda: any(one["event"] == "stopping" for one in both.events))
    (shell.folder / "go").touch()
    assert both.process.wait(60) == 0
    assert status_of(shell, id) == "completed"


def test_two_signals_stop_it_at_once_and_hand_jobs_back(shell: Shell) -> None:
    both = running(shell, "up", "quick:app", "--grace", "600")
    id = shell.submit("slow")
    until_sync(lambda: status_of(shell, id) == "running")
    both.process.send_signal(signal.SIGINT)
    until_sync(lambda: any(one["event"] == "stopping" for one in both.events))
    both.process.send_signal(signal.SIGTERM)
    assert both.process.wait(60) == 128 + signal.SIGTERM
    assert status_of(shell, id) == "queued"


def test_an_app_without_tasks_is_told(shell: Shell) -> None:
    assert "no tasks to run" in shell("up", "--url", shell.url, code=2).stderr
