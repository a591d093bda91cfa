"""One rule for times: local with the offset for people, UTC in JSON; lengths of time with units, everywhere."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import click
import pytest

from headrace.cli.options import duration
from headrace.cli.root import cli
from tests.cli.conftest import Shell

MOMENT = re.compile(r"\d\d:\d\d(?::\d\d)(?:\.\d+)?(\S*)")
"""A time of day, and what follows it."""


@pytest.fixture(autouse=True)
def india(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose zone nobody takes for UTC."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def full(shell: Shell) -> Shell:
    """A store with a bit of everything in it."""
    shell.submit("boom")
    shell.submit("chatty")
    shell.work()
    shell.submit("add", "a=1", "--not-before", "2035-01-01T00:00", "--not-after", "2036-01-01T00:00")
    shell.submit("add", "a=2")
    shell("queues", "pause", "default", "--url", shell.url)
    words = ["--cron", "0 2 * * *", "--tz", "Europe/Berlin", "--start", "2030-01-01T00:00"]
    shell("schedules", "create", "nightly", "add", "a=1", *words, "--app", "quick")
    return shell


def views(shell: Shell) -> Iterator[list[str]]:
    """Every command that shows moments, with what it needs."""
    for job in shell.json("jobs", "--url", shell.url)["items"]:
        yield ["show", job["id"]]
        yield ["explain", job["id"]]
        yield ["logs", job["id"]]
        if job["status"] in ("completed", "failed"):
            yield ["watch", job["id"]]
    for words in ("jobs", "queues", "stats", "workers", "schedules", "schedules show nightly", "tasks", "doctor"):
        yield words.split()


def test_people_are_told_local_times_with_the_offset(full: Shell) -> None:
    found = 0
    for words in views(full):
        result = full(*words, "--url", full.url, code=_code(full, words))
        text = result.stdout + result.stderr
        if words[0] == "show":
            assert ", times UTC+05:30" in text, text
            text = text.partition("timeline")[0]  # whose offset is named once
        for line in text.splitlines():
            for after in MOMENT.findall(re.sub(r"\b(0 2 \* \* \*)", "", line)):
                assert after.startswith("+05:30"), (words, line)
                found += 1
    assert found > 15


def _code(shell: Shell, words: list[str]) -> int:
    """Exit codes that say how a job ended, or that nobody serves one."""
    if words[0] == "watch":
        return 0 if shell.json("show", words[1], "--url", shell.url)["status"] == "completed" else 1
    return 1 if words[0] == "doctor" else 0


def test_programs_are_told_utc(full: Shell) -> None:
    found = 0
    for words in views(full):
        result = full(*words, "--json", "--url", full.url, code=_code(full, words))
        for said in re.findall(r'"(\d{4}-\d\d-\d\dT[^"]*)"', result.stdout):
            assert said.endswith("Z"), (words, said)
            found += 1
    assert found > 50


def test_the_next_fires_are_told_here_and_there(full: Shell) -> None:
    first, *_ = full("schedules", "next", "nightly", "--url", full.url).stdout.splitlines()
    assert re.fullmatch(r"2030-01-01 06:30:00\+05:30  \(2030-01-01 02:00:00\+01:00 Europe/Berlin\)", first), first
    [fire, *_] = full.json("schedules", "next", "nightly", "--url", full.url)
    assert fire == {"at": "2030-01-01T01:00:00Z", "local": "2030-01-01T02:00:00+01:00"}


def test_a_worker_tells_local_times_with_the_offset(full: Shell) -> None:
    said = full("worker", "quick:app", "--burst").stderr
    assert [after for line in said.splitlines() for after in MOMENT.findall(line)] == ["+05:30"] * len(
        said.splitlines()
    )


def test_a_moment_without_an_offset_is_local(full: Shell) -> None:
    [job] = full.json("jobs", "--status", "scheduled", "--url", full.url)["items"]
    assert (job["available_at"], job["not_after"]) == ("2034-12-31T18:30:00Z", "2035-12-31T18:30:00Z")


# Lengths of time


def options(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Option]]:
    """Every option of every command."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from options(found, f"{path} {name}".strip())
    yield from ((path, one) for one in command.params if isinstance(one, click.Option))


def test_every_length_of_time_takes_units() -> None:
    of_time = {(path, one.opts[0]) for path, one in options(cli) if getattr(one.type, "func", None) is duration}
    assert of_time >= {
        ("rates set", "--per"),
        ("submit", "--delay"),
        ("submit", "--timeout"),
        ("run", "--wait"),
        ("watch", "--timeout"),
        ("worker", "--grace"),
        ("schedules create", "--every"),
        ("schedules create", "--cool-down"),
        ("schedules create", "--jitter"),
    }
    numbers = {(path, one.opts[0]) for path, one in options(cli) if one.type is click.FLOAT}
    assert numbers == set()


@pytest.mark.parametrize(("words", "per"), [("60s", 60.0), ("1h30m", 5400.0), ("60", 60.0), ("0.5", 0.5)])
def test_a_rate_is_for_a_duration(shell: Shell, words: str, per: float) -> None:
    found: Any = shell.json("rates", "set", "stripe", "100", "--per", words, "--url", shell.url)
    assert found["stripe"]["per"] == per


def test_a_mistyped_duration_is_bad_usage(shell: Shell) -> None:
    said = shell("rates", "set", "stripe", "100", "--per", "60 parsecs", "--url", shell.url, code=2).stderr
    assert "'60 parsecs' is not a duration: say 90, 250ms, 60s, 15m, 1h30m or 1.5d" in said
