"""Schedules from the command line: with everything a rule may say, shown and previewed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.core.times import moment
from tests.cli.conftest import Shell

pytestmark = pytest.mark.timeout(240)

POLL = """
from headrace import Continuous

@app.task(continuous=Continuous(instances=2))
async def poll() -> None: ...
"""
RULE = ["--cron", "30 1 * * *", "--tz", "America/New_York"]


def test_a_schedule_takes_everything_a_rule_may_say(shell: Shell) -> None:
    words = ["--start", "2030-03-01T00:00+00:00", "--end", "2030-04-01T00:00+00:00", "--jitter", "90s"]
    words += ["--overlap", "wait", "--catch-up", "all", "--cap", "7"]
    [made] = shell.json("schedules", "create", "report", "add", "a=1", *RULE, *words, "--app", "quick")
    rule = made["rule"]
    assert (rule["expr"], rule["tz"], rule["jitter"]) == ("30 1 * * *", "America/New_York", 90)
    assert (rule["start"], rule["end"]) == ("2030-03-01T00:00:00Z", "2030-04-01T00:00:00Z")
    assert (rule["overlap"], rule["catch_up"], rule["cap"]) == ("wait", "all", 7)
    assert (made["state"], made["skipped"], made["waiting"], made["payload"]) == ("active", 0, None, {"a": 1})
    assert made["next_fire"] == "2030-03-01T06:30:00Z"
    assert shell.json("schedules", "show", "report", "--url", shell.url) == made
    text = shell("schedules", "show", "report", "--url", shell.url).stdout
    for said in ("30 1 * * * America/New_York", "active", "wait", '{"a": 1}', "dynamic", "1 m 30 s"):
        assert said in text


def test_the_next_fires_are_shown_through_the_turn_of_the_clocks(shell: Shell) -> None:
    shell("schedules", "create", "report", "add", "a=1", *RULE, "--start", "2030-03-09T00:00+00:00", "--app", "quick")
    found = shell.json("schedules", "next", "report", "-n", "3", "--url", shell.url)
    assert found == [
        {"at": "2030-03-09T06:30:00Z", "local": "2030-03-09T01:30:00-05:00"},
        {"at": "2030-03-10T06:30:00Z", "local": "2030-03-10T01:30:00-05:00"},
        {"at": "2030-03-11T05:30:00Z", "local": "2030-03-11T01:30:00-04:00"},
    ]
    shown = shell("schedules", "next", "report", "-n", "3", "--url", shell.url)
    here = moment(datetime(2030, 3, 11, 5, 30, tzinfo=UTC), None)
    assert shown.stdout.splitlines()[2] == f"{here}  (2030-03-11 01:30:00-04:00 America/New_York)"
    assert len(shell("schedules", "next", "report", "--url", shell.url).stdout.splitlines()) == 5
    shell("schedules", "pause", "report", "--url", shell.url)
    paused = shell("schedules", "next", "report", "-n", "3", "--url", shell.url)
    assert (paused.stdout, "is paused" in paused.stderr) == (shown.stdout, True)


def test_the_list_tells_state_fires_and_skips(shell: Shell) -> None:
    shell("schedules", "create", "report", "add", "a=1", *RULE, "--app", "quick")
    (line,) = [line for line in shell("schedules", "--url", shell.url).stdout.splitlines() if "report" in line]
    assert "active" in line
    assert "never" in line
    shell("schedules", "pause", "report", "--url", shell.url)
    assert "paused" in shell("schedules", "--url", shell.url).stdout
    [told] = shell.json("schedules", "--url", shell.url)
    assert {"state", "next_fire", "last_fire", "last_job", "skipped", "waiting"} <= told.keys()


def test_a_paused_schedule_that_is_made_again_is_still_paused_and_that_is_said(shell: Shell) -> None:
    words = ["schedules", "create", "report", "add", "a=1", *RULE, "--app", "quick"]
    assert "paused" not in shell(*words).stderr
    shell("schedules", "pause", "report", "--url", shell.url)
    said = shell(*words).stderr
    assert "is still paused: headrace schedules resume report lets it fire" in said
    [made] = shell.json(*words)
    assert (made["state"], made["paused"]) == ("paused", True)
    shell("schedules", "resume", "report", "--url", shell.url)
    assert "paused" not in shell(*words).stderr


def test_what_is_wrong_is_named(shell: Shell) -> None:
    for words, said in (
        (["--cron", "0 2 * * *", "--tz", "Mars/Olympus"], "Mars/Olympus"),
        (["--every", "5m", "--jitter", "6m"], "jitter (360 s) is longer than the time between two fires"),
        (["--every", "5m", "--start", "2030-02-01", "--end", "2030-01-01"], "is before start"),
        (["--every", "5m", "--end", "2020-01-01"], "would never fire"),
        (["--every", "0.01s"], "Every needs a period of at least 0.1 s, not 0.01 s"),
        (["--every", "5m", "--cap", "0"], "cap must be a whole number"),
        (["--every", "5m", "--start", "soon"], "'soon' is not a moment"),
        (["--every", "5m", "--cool-down", "5s"], "--cool-down belongs to --continuous, not to --every"),
        (["--continuous", "2", "--tz", "UTC"], "--tz belongs to --cron, not to --continuous"),
        (["--continuous", "2", "--jitter", "5s"], "--jitter belongs to a rule with fires, not to --continuous"),
        (["--continuous", "2", "--every", "5m"], "one of them"),
        (["--continuous", "0"], "instances must be a whole number from 1"),
    ):
        told = shell("schedules", "create", "x", "add", "a=1", *words, "--app", "quick", code=2)
        assert said in " ".join(told.stderr.split())
    shell("schedules", "next", "x", "--url", shell.url, code=3)
    shell("schedules", "show", "x", "--url", shell.url, code=3)


def test_continuous_tasks_stand_among_the_schedules(shell: Shell) -> None:
    with (shell.folder / "quick.py").open("a") as file:
        file.write(POLL)
    shell.start("worker", "quick:app", "--burst").communicate(timeout=60)
    [told] = shell.json("schedules", "--url", shell.url)
    assert (told["name"], told["state"], told["source"]) == ("poll", "unserved", "code")
    assert told["rule"] == {"kind": "continuous", "instances": 2, "cool_down": 5.0}
    assert "continuous × 2" in shell("schedules", "--url", shell.url).stdout
    [paused] = shell.json("schedules", "pause", "poll", "--url", shell.url)
    assert paused["state"] == "paused"
    assert "runs by itself" in shell("schedules", "trigger", "poll", "--url", shell.url, code=2).stderr
    assert "has no fires" in shell("schedules", "next", "poll", "--url", shell.url, code=2).stderr
    words = ["schedules", "create", "sums", "add", "a=1", "--continuous", "3", "--cool-down", "1m"]
    [made] = shell.json(*words, "--app", "quick")
    assert made["rule"] == {"kind": "continuous", "instances": 3, "cool_down": 60.0}
