"""Reading the logs of jobs."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import Shell

pytestmark = pytest.mark.timeout(240)


def test_logs_shows_what_was_said_in_each_attempt(shell: Shell) -> None:
    id = shell.submit("chatty")
    for _ in range(3):
        shell.work()
        if shell.json("show", id, "--url", shell.url)["status"] == "completed":
            break
    said = shell("logs", id[-8:], "--url", shell.url).stdout.splitlines()
    assert [re.sub(r"^\S+ ", "", one) for one in said] == [
        f"#{attempt} WARNING shop: line {number} of attempt {attempt} \\x1b[31m"
        for attempt in (1, 2)
        for number in (0, 1)
    ]
    one = shell.json("logs", id, "--attempt", "2", "--url", shell.url)
    assert one["id"] == id
    assert [(line["attempt"], line["number"]) for line in one["items"]] == [(2, 1), (2, 2)]
    assert {line["level"] for line in one["items"]} == {"WARNING"}


def test_logs_of_a_silent_job(shell: Shell) -> None:
    id = shell.submit("add", "a=1")
    result = shell("logs", id, "--url", shell.url)
    assert result.stdout == ""
    assert "no log lines" in result.stderr
    shell("logs", "ffffffff", "--url", shell.url, code=3)


def test_following_ends_with_the_job(shell: Shell) -> None:
    id = shell.submit("chatty", "lines=3")
    following = shell.start("logs", id, "--follow", "--json", "--url", shell.url)
    worker = shell.start("worker", "quick:app")
    out, _ = following.communicate(timeout=60)
    worker.terminate()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["attempt"], line["number"]) for line in lines] == [(a, n) for a in (1, 2) for n in (1, 2, 3)]
    assert following.returncode == 0
