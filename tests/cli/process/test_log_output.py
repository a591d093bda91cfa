"""What worker processes say, as text and as JSON lines: real processes, and every line of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.cli.patience import until_sync

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(240),
]

LOUD = """
import logging
import threading
import warnings
from headrace import App, Context, Retry

app = App("sqlite:///jobs.db")
shop, third = logging.getLogger("shop"), logging.getLogger("third.party")

@app.task(queue="till", retry=Retry(max_retries=1, backoff="fixed", initial=0.0, jitter=False))
async def sell(ctx: Context, what: str) -> None:
    shop.warning("selling %s\\nand more", what, extra={"order": 7, "odd": object(), "task": "mine"})
    if ctx.attempt == 1:
        try:
            raise ValueError("no till")
        except ValueError:
            third.exception("trouble")
            raise

class Sly:
    def __del__(self):
        raise OSError("sly")

@app.task
def plain() -> None:
    third.error("in a thread")
    warnings.warn("old")
    thread = threading.Thread(target=int, args=("x",), name="mine")
    thread.start()
    thread.join()
    Sly()

@app.task(run_in="process")
def heavy() -> None:
    shop.warning("in a process")
"""


def said(shell: Shell, *words: str, code: int = 0, **environment: str) -> list[str]:
    """What a command says on stderr, line by line, and nothing on stdout."""
    command = [sys.executable, "-m", "headrace", "worker", *words]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")} | environment
    ran = subprocess.run(
        command, cwd=shell.folder, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == code, ran.stderr
    assert ran.stdout == ""
    return ran.stderr.splitlines()


def loud(shell: Shell, extra: str = "") -> list[str]:
    """An App that logs in every kind of handler; the ids of jobs of it."""
    (shell.folder / "loud.py").write_text(LOUD + extra)
    calls = (("sell", "what=tea"), ("plain",), ("heavy",))
    return [shell("submit", *words, "--app", "loud").stdout.strip() for words in calls]


def one(lines: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """The one line that has these fields."""
    (found,) = [line for line in lines if all(line.get(name) == value for name, value in fields.items())]
    return found


def check(lines: list[dict[str, Any]], ids: list[str]) -> None:
    """Look at the lines of one round of those jobs."""
    sell, plain, heavy = ids
    first = one(lines, logger="shop", job_id=sell, attempt=1)
    worker = first["worker"]
    assert first["message"] == "selling tea\nand more"
    assert (first["level"], first["task"], first["queue"], first["order"]) == ("WARNING", "sell", "till", 7)
    assert first["odd"].startswith("<object object")
    assert first["extra_task"] == "mine"
    trouble = one(lines, logger="third.party", job_id=sell)
    assert (trouble["message"], trouble["level"], trouble["attempt"]) == ("trouble", "ERROR", 1)
    assert trouble["exception"].startswith("Traceback (most recent call last)")
    assert trouble["exception"].endswith("ValueError: no till")
    assert one(lines, logger="shop", job_id=sell, attempt=2)["message"] == "selling tea\nand more"
    ours = one(lines, logger="headrace.worker", job_id=sell)
    assert "attempt 1 of 2 failed: ValueError: no till" in ours["message"]
    assert ours["worker"] == worker
    assert one(lines, job_id=plain, message="in a thread")["task"] == "plain"
    assert "UserWarning: old" in one(lines, job_id=plain, logger="py.warnings")["message"]
    assert one(lines, logger="threading")["exception"].endswith("invalid literal for int() with base 10: 'x'")
    assert one(lines, logger="python", job_id=plain)["exception"].endswith("OSError: sly")
    child = one(lines, job_id=heavy, logger="shop")
    assert (child["message"], child["task"], child["attempt"]) == ("in a process", "heavy", 1)
    assert child["pid"] not in {line["pid"] for line in lines if line["logger"].startswith("headrace")}
    assert one(lines, event="started", worker=worker)["tasks"] == ["heavy", "plain", "sell"]


def test_every_line_of_a_worker_is_a_json_object(shell: Shell) -> None:
    ids = loud(shell)
    lines = [json.loads(line) for line in said(shell, "loud", "--burst", "--log-format", "json")]
    check(lines, ids)
    stopped = one(lines, event="stopped")
    assert (stopped["done"], stopped["worker"]) == (3, one(lines, event="started")["worker"])
    assert all(line["time"].endswith("Z") and line["level"] and line["message"] for line in lines)


def test_text_handlers_of_the_app_write_json_too(shell: Shell) -> None:
    ids = loud(shell, "logging.basicConfig(level=logging.INFO, format='TEXT %(message)s')\nshop.info('imported')\n")
    lines = [json.loads(line) for line in said(shell, "loud", "--burst", HEADRACE_LOG_FORMAT="json")]
    check(lines, ids)
    assert lines[0]["message"] == "imported"


def test_the_supervisor_and_all_its_processes_speak_json(shell: Shell) -> None:
    ids = loud(shell)
    (shell.folder / "headrace.toml").write_text('log_format = "json"')
    lines = [json.loads(line) for line in said(shell, "loud", "--burst", "--processes", "2")]
    check(lines, ids)
    supervisor = one(lines, logger="headrace.supervisor")
    assert supervisor["message"] == f"2 worker processes (supervisor {supervisor['pid']})"
    started = [line for line in lines if line.get("event") == "started"]
    assert len({line["pid"] for line in started} | {supervisor["pid"]}) == 3
    assert len({line["worker"] for line in started}) == 2


def test_as_text_all_of_them_say_when(shell: Shell) -> None:
    lines = said(shell, "quick", "--burst", "--processes", "2")
    assert len(lines) == 5
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3}", line) for line in lines), lines


def test_what_keeps_a_worker_from_starting_is_a_json_line_too(shell: Shell) -> None:
    for more in ((), ("--debug",)):
        found = json.loads(shell("worker", "nowhere", "--log-format", "json", *more, code=2).stderr)
        assert (found["level"], found["logger"]) == ("ERROR", "headrace.cli")
        assert found["message"].startswith("no module named 'nowhere'")
        assert ("exception" in found) is bool(more)


def test_the_flag_wins_over_the_settings_and_a_wrong_one_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LOG_FORMAT", "json")
    assert shell("worker", "quick", "--burst").stderr.startswith("{")
    assert "{" not in shell("worker", "quick", "--burst", "--log-format", "text").stderr
    monkeypatch.setenv("HEADRACE_LOG_FORMAT", "xml")
    wrong = shell("worker", "quick", "--burst", code=2).stderr
    assert "HEADRACE_LOG_FORMAT: log_format must be 'text' or 'json', not 'xml'" in wrong
    assert "'xml' is not one of 'text', 'json'" in shell("worker", "quick", "--log-format", "xml", code=2).stderr


def test_events_and_log_are_told_apart(shell: Shell) -> None:
    shell.submit("boom")
    told = shell("worker", "quick", "--burst", "--json", "--log-format", "json")
    assert [json.loads(line)["event"] for line in told.stdout.splitlines()] == ["started", "stopped"]
    assert {json.loads(line)["task"] for line in told.stderr.splitlines()} == {"boom"}


def test_text_says_which_job_a_line_belongs_to(shell: Shell) -> None:
    sell, plain, heavy = loud(shell)
    lines = said(shell, "loud", "--burst")
    for text in (
        f" warning: sell {sell[-8:]}: selling tea",
        f" error: sell {sell[-8:]}: trouble",
        f" warning: sell {sell[-8:]}: attempt 1 of 2 failed: ValueError: no till",
        f" error: plain {plain[-8:]}: in a thread",
        f" warning: heavy {heavy[-8:]}: in a process",
    ):
        assert any(text in line for line in lines), text
    assert "    ValueError: no till" in lines  # set in, so that nothing in it looks like a line of the log


def test_an_app_that_shows_its_log_is_left_to_do_so(shell: Shell) -> None:
    loud(shell, "logging.basicConfig(format='APP %(message)s')\n")
    lines = said(shell, "loud", "--burst")
    assert "APP selling tea" in lines
    assert not any(": selling tea" in line for line in lines)


def test_an_orphan_says_so_as_json(shell: Shell) -> None:
    child = shell.start("worker", "quick", "--processes", "2", "--log-format", "json")
    assert child.stderr is not None
    started = 0
    while started < 2:
        started += json.loads(child.stderr.readline()).get("event") == "started"
    child.kill()
    rest = [json.loads(line) for line in child.stderr]
    assert sum(line["message"] == "the supervisor is gone: stopping" for line in rest) == 2
    until_sync(lambda: child.poll() is not None)
