"""Submitting by name."""

from __future__ import annotations

import importlib
import signal
from uuid import UUID

import pytest

from tests.cli.conftest import Shell
from tests.cli.patience import until_sync

pytestmark = pytest.mark.timeout(240)


def test_submit_prints_the_id_and_nothing_else_on_stdout(shell: Shell) -> None:
    result = shell("submit", "add", "a=1", "--app", "quick")
    assert UUID(result.stdout.strip())


def test_options_become_the_job(shell: Shell) -> None:
    words = [
        "--queue",
        "q",
        "--priority",
        "low",
        "--tag",
        "x",
        "--tag",
        "y",
        "--meta",
        "n=1",
        "--timeout",
        "2m",
        "--heartbeat",
        "30s",
    ]
    job = shell.json(
        "submit", "resize", "image=cat.png", "--app", "quick", *words, "--max-retries", "7", "--delay", "1h"
    )
    assert job["task"] == "resize"
    assert job["payload"] == {"image": "cat.png"}
    assert (job["queue"], job["priority"], job["timeout"], job["heartbeat"]) == ("q", 15, 120.0, 30.0)
    assert (job["tags"], job["metadata"], job["max_attempts"]) == (["x", "y"], {"n": 1}, 8)
    assert job["status"] == "scheduled"
    assert job["duplicate"] is False


def test_a_payload_that_does_not_fit_is_refused_by_field(shell: Shell) -> None:
    result = shell("submit", "add", "a=one", "--app", "quick", code=2)
    assert "add: a:" in result.stderr


def test_a_task_nobody_registered_is_accepted_with_a_warning(shell: Shell) -> None:
    result = shell("submit", "mystery", "x=1", "--url", shell.url)
    assert UUID(result.stdout.strip())
    assert result.stderr.startswith("warning: no worker has registered a task named 'mystery'")
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_held_key_returns_its_job_or_refuses(shell: Shell) -> None:
    first = shell.submit("add", "a=1", "--dedup", "k")
    again = shell.json("submit", "add", "a=1", "--dedup", "k", "--app", "quick")
    assert (again["id"], again["duplicate"]) == (first, True)
    shell("submit", "add", "a=1", "--dedup", "k", "--on-duplicate", "raise", "--app", "quick", code=4)


def test_a_held_key_may_be_replaced(shell: Shell) -> None:
    words = ("--dedup", "k", "--on-duplicate", "replace", "--delay", "1h", "--app", "quick")
    first = shell.submit("add", "a=1", *words[:-2])
    result = shell("submit", "add", "a=2", *words)
    assert result.stdout.strip() == first
    assert result.stderr == "replaced: the job that holds this key has these arguments now; it is scheduled\n"
    again = shell.json("submit", "add", "a=3", *words)
    assert (again["id"], again["duplicate"], again["replaced"], again["payload"]["a"]) == (first, True, True, 3)
    shown = shell("show", first, "--url", shell.url).stdout
    [line] = [line for line in shown.splitlines() if " replace " in line]
    assert "×2 · until" in line, "one line for all of them"
    refused = shell("submit", "add", "a=2", *words, "--dedup-for", "10m", code=2)
    assert 'on_duplicate="replace" and dedup_for exclude each other' in refused.stderr


def test_a_key_may_be_held_for_a_period(shell: Shell) -> None:
    words = ("submit", "add", "a=1", "--dedup", "k", "--dedup-for", "10m", "--app", "quick")
    first = shell.submit(*words[1:-2])
    shell("resolve", first, "--result", "1", "--url", shell.url)
    again = shell(*words)
    assert again.stdout.strip() == first
    assert again.stderr.startswith("already there: a job that completed holds this key until 2")
    refused = shell("submit", "add", "a=1", "--dedup-for", "10m", "--app", "quick", code=2)
    assert "there is no key: give dedup, too" in refused.stderr


def test_a_request_that_is_repeated_finds_its_job(shell: Shell) -> None:
    words = ("submit", "add", "a=1", "--request-key", "r-7", "--customer", "acme")
    first = shell.submit(*words[1:])
    again = shell(*words, "--on-duplicate", "raise", "--app", "quick")
    assert again.stdout.strip() == first
    assert again.stderr == "already there: this request made it before; it is queued\n"
    result = shell("submit", "add", "a=2", "--request-key", "r-7", "--customer", "acme", "--app", "quick", code=4)
    assert first in result.stderr
    assert "give a new request a key of its own" in result.stderr
    assert shell.submit("add", "a=2", "--request-key", "r-7") != first


def test_delay_and_not_before_exclude_each_other(shell: Shell) -> None:
    shell("submit", "add", "a=1", "--app", "quick", "--delay", "1", "--not-before", "2030-01-01", code=2)


def test_run_waits_and_prints_the_result(shell: Shell) -> None:
    worker = shell.start("worker", "quick:app")
    assert shell("run", "add", "a=20", "b=22", "--app", "quick").stdout == "42\n"
    result = shell("run", "boom", "what=no", "--app", "quick", "--max-retries", "0", code=1)
    assert "ValueError: no" in result.stderr
    assert result.stdout == ""
    job = shell.json("run", "resize", "--payload", '{"image": "x"}', "--app", "quick")
    assert (job["status"], job["result"]) == ("completed", {"image": "x", "width": 800})
    worker.terminate()
    assert worker.wait(60) == 0


def test_run_gives_up_waiting_and_leaves_the_job(shell: Shell) -> None:
    result = shell("run", "add", "a=1", "--app", "quick", "--wait", "50ms", code=1)
    assert "it goes on" in result.stderr
    assert shell.json("jobs", "--url", shell.url)["items"][0]["status"] == "queued"


def test_run_says_why_nothing_happens(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("headrace.cli.commands.submit"), "SILENCE_SECONDS", 0.01)
    result = shell("run", "add", "a=1", "--app", "quick", "--wait", "500ms", code=1)
    assert len(result.stderr.splitlines()) >= 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_takes_its_job_along(shell: Shell, number: signal.Signals) -> None:
    child = shell.start("run", "add", "a=1", "--app", "quick")
    until_sync(lambda: bool(shell.json("jobs", "--url", shell.url)["items"]))
    child.send_signal(number)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    [job] = shell.json("jobs", "--url", shell.url)["items"]
    assert (job["status"], job["reason"]) == ("cancelled", "user")
    assert f"cancelled job {job['id']}" in said
    assert "Traceback" not in said


# Names that nobody knows


@pytest.mark.parametrize("command", [["submit"], ["run"], ["schedules", "create", "nightly"]])
def test_a_misspelt_task_of_a_known_app_is_an_error(shell: Shell, command: list[str]) -> None:
    rule = ["--cron", "0 2 * * *"] if command[0] == "schedules" else []
    said = shell(*command, "resiez", "image=x", *rule, "--app", "quick", code=3).stderr
    assert (
        "'resiez': this App has no task of that name, nor has any worker of its store; did you mean 'resize'?" in said
    )
    assert shell.json("stats", "--url", shell.url)["ledger"]["accepted"] == 0


def test_a_name_like_no_other_is_an_error_that_lists_the_tasks(shell: Shell) -> None:
    said = shell("submit", "xyzzy", "--app", "quick", code=3).stderr
    assert "there are add, boom, chatty, resize, slow" in said
    assert "use --url URL without --app" in said


def test_by_name_without_an_app_it_is_a_warning_with_a_guess(shell: Shell) -> None:
    shell.work()  # which registers the tasks
    result = shell("submit", "resiez", "image=x", "--url", shell.url)
    assert "no worker has registered a task named 'resiez'" in result.stderr
    assert "did you mean 'resize'?" in result.stderr
    [job] = shell.json("jobs", "--url", shell.url)["items"]
    assert (job["id"], job["task"]) == (result.stdout.strip(), "resiez")


def test_an_app_without_tasks_is_a_client_and_warned(shell: Shell) -> None:
    (shell.folder / "client.py").write_text('from headrace import App\napp = App("sqlite:///jobs.db")\n')
    assert "no worker has registered" in shell("submit", "resize", "image=x", "--app", "client").stderr


def test_tasks_of_another_service_are_known_by_its_workers(shell: Shell) -> None:
    (shell.folder / "other.py").write_text(
        'from headrace import App\napp = App("sqlite:///jobs.db")\n@app.task\ndef adds(a: int) -> int:\n    return a\n'
    )
    shell("submit", "add", "a=1", "--app", "other", code=3)
    shell.work()  # the other service has started once
    assert shell("submit", "add", "a=1", "--app", "other").stderr == ""


def test_tasks_of_imported_modules_are_known(shell: Shell) -> None:
    (shell.folder / "parts.py").write_text("from wide import app\n@app.task\ndef part(a: int) -> int:\n    return a\n")
    (shell.folder / "wide.py").write_text(
        'from headrace import App\napp = App("sqlite:///jobs.db", imports=["parts"])\n'
        "@app.task\ndef whole() -> None: ...\n"
    )
    assert shell("submit", "part", "a=1", "--app", "wide").stderr == ""


def test_flags_that_contradict_each_other_are_named_as_flags(shell: Shell) -> None:
    times = ("--not-before", "2099-01-02T00:00+00:00", "--not-after", "2099-01-01T00:00+00:00")
    told = shell("submit", "add", "a=1", *times, "--app", "quick", code=2).stderr
    assert "--not-after (" in told
    assert "must be later than --not-before (" in told
