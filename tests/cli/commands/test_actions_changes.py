"""What a person changes of jobs that no worker has."""

from __future__ import annotations

from socket import gethostname

from tests.cli.conftest import Shell


def test_jobs_are_postponed_run_now_moved_and_reprioritised(shell: Shell) -> None:
    id = shell.submit("add", "a=1")
    [verdict] = shell.json("postpone", id, "--to", "2h", "--url", shell.url)
    assert (verdict["verdict"], verdict["job"]["status"]) == ("done", "scheduled")
    [verdict] = shell.json("postpone", id, "--to", "2099-01-31T08:00+01:00", "--url", shell.url)
    assert verdict["job"]["available_at"] == "2099-01-31T07:00:00Z"
    assert "queued" in shell("run-now", id, "--url", shell.url).stdout
    shell("move", id, "--to", "slow", "--url", shell.url)
    shell("reprioritise", id, "--to", "90", "--url", shell.url)
    record = shell.json("show", id, "--url", shell.url)
    assert (record["queue"], record["asked_queue"], record["priority"], record["asked_priority"]) == (
        "slow",
        "default",
        90,
        50,
    )
    assert [(one["verb"], one["details"]) for one in record["events"]][2:] == [
        ("run_now", None),
        ("move", {"from": "default", "to": "slow"}),
        ("reprioritise", {"from": 50, "to": 90}),
    ]
    assert all(one["by"].endswith(f" on {gethostname()}") for one in record["events"])
    shown = shell("show", id, "--url", shell.url).stdout
    assert "run now" in shown
    assert "slow · priority 90 · system (asked for queue default, priority 50)" in shown
    assert "until 2099-01-31" in shown
    assert "from default to slow" in shown
    refused = shell("run-now", id, "--url", shell.url, code=4)
    assert f"cannot run job {id} now: it is queued already" in refused.stderr


def test_jobs_are_changed_by_filter(shell: Shell) -> None:
    for number in range(3):
        shell.submit("add", f"a={number}", "--delay", "1h")
    other = shell.submit("resize", "image=x")
    result = shell("move", "--task", "add", "--to", "slow", "--url", shell.url, code=2)
    assert "this would move 3 jobs: say --yes" in result.stderr
    assert len(shell.json("move", "--task", "add", "--to", "slow", "--yes", "--url", shell.url)) == 3
    assert len(shell.json("run-now", "--queue", "slow", "--yes", "--url", shell.url)) == 3
    result = shell("reprioritise", "--queue", "slow", "--to", "1", "--yes", "--url", shell.url)
    assert "3 of 3 reprioritised" in result.stderr
    assert shell.json("show", other, "--url", shell.url)["queue"] == "images"


def test_a_time_is_a_moment_or_a_duration(shell: Shell) -> None:
    id = shell.submit("add", "a=1")
    assert (
        "is neither a moment nor a length of time"
        in shell("postpone", id, "--to", "soon", "--url", shell.url, code=2).stderr
    )
    told = shell("postpone", id, "--to", "2020-01-01", "--url", shell.url, code=4).stderr
    assert "is not in the future; to run it at once: headrace run-now" in told


def test_what_was_changed_is_said(shell: Shell) -> None:
    id = shell.submit("boom", "--max-retries", "0", "--delay", "1h")
    assert "scheduled  queue slow" in shell("move", id, "--to", "slow", "--url", shell.url).stdout
    assert "scheduled  priority 80 (high)" in shell("reprioritise", id, "--to", "high", "--url", shell.url).stdout
    assert "scheduled  due in " in shell("postpone", id, "--to", "1d", "--url", shell.url).stdout
    told = shell("postpone", id, "--to", "2099-01-31T08:00+00:00", "--url", shell.url).stdout
    assert "d, 2099-01-31" in told
    shell("cancel", id, "--url", shell.url)
    assert "due in " in shell("retry", id, "--delay", "1h", "--url", shell.url).stdout
    assert "delay 1 h" in shell("show", id, "--url", shell.url).stdout


def test_jobs_are_resolved(shell: Shell) -> None:
    done, failed = shell.submit("add", "a=1"), shell.submit("add", "a=2")
    assert shell.json("resolve", done, "--result", "7", "--url", shell.url)[0]["job"]["result"] == 7
    [verdict] = shell.json("resolve", failed, "--error", "given up", "--url", shell.url)
    assert (verdict["job"]["status"], verdict["job"]["error"]["message"]) == ("failed", "given up")
    shell("resolve", done, "--result", "7", "--error", "x", "--url", shell.url, code=2)


def test_a_resolved_job_ends_as_it_was_said_and_not_by_silence(shell: Shell) -> None:
    id, other = shell.submit("add", "a=1"), shell.submit("resize", "image=x")
    assert "--result JSON (null, if they have none) or --error" in shell("resolve", id, "--app", "quick", code=2).stderr
    assert shell.json("show", id, "--url", shell.url)["status"] == "queued"
    verdicts = shell.json("resolve", id, other, "--result", '{"image": 1}', "--app", "quick", code=2)
    assert [one["verdict"] for one in verdicts] == ["refused", "done"], "each is judged by its own task"
    assert "result" in verdicts[0]["message"]
    assert shell.json("resolve", id, "--result", "null", "--app", "quick")[0]["job"]["status"] == "completed"
    refused = shell("resolve", id, "--result", "no number", "--app", "quick", code=4).stderr
    assert "completed" in refused, "what is wrong with the job is said before what is wrong with the result"


def test_what_was_failed_by_hand_is_listed_with_the_failures_until_it_is_discarded(shell: Shell) -> None:
    id = shell.submit("add", "a=1")
    shell("resolve", id, "--error", "given up", "--url", shell.url)
    [group] = shell.json("failures", "--url", shell.url)
    assert (group["task"], group["type"], group["message"]) == ("add", "Resolved", "given up")
    shell("discard", "--fingerprint", group["fingerprint"], "--yes", "--url", shell.url)
    assert shell.json("failures", "--url", shell.url) == []


def test_a_job_is_rerun_with_changes_and_retried_later(shell: Shell) -> None:
    id = shell.submit("boom", "what=x", "--max-retries", "0")
    shell.work()
    [verdict] = shell.json("retry", id, "--delay", "1h", "--url", shell.url)
    assert verdict["job"]["status"] == "scheduled"
    shell("cancel", id, "--url", shell.url)
    words = ("--arg", "what=y", "--to", "slow", "--priority", "3", "--delay", "1h")
    [verdict] = shell.json("rerun", id, *words, "--app", "quick")
    job = verdict["job"]
    assert (job["payload"], job["queue"], job["priority"], job["status"]) == ({"what": "y"}, "slow", 3, "scheduled")
    [verdict] = shell.json("rerun", id, "--payload", '{"what": "z"}', "--app", "quick")
    assert verdict["job"]["payload"] == {"what": "z"}


def test_who_changed_settings_is_shown(shell: Shell) -> None:
    assert "nothing was changed" in shell("audit", "--url", shell.url).stderr
    shell("queues", "set", "mail", "--priority", "5", "--url", shell.url)
    shell("queues", "pause", "mail", "--by", "ann", "--url", shell.url)
    shell("rates", "set", "api", "5", "--per", "60", "--url", shell.url)
    shell("schedules", "create", "tidy", "add", "a=1", "--every", "1h", "--app", "quick")
    shell("schedules", "delete", "tidy", "--url", shell.url)
    found = shell.json("audit", "--url", shell.url)
    assert [(one["key"], one["verb"]) for one in found] == [
        ("schedule:tidy", "delete"),
        ("schedule:tidy", "set"),
        ("rate:api", "set"),
        ("queue:mail", "pause"),
        ("queue:mail", "set"),
    ]
    assert found[3]["by"] == "ann"
    assert " on " in found[4]["by"]
    assert found[4]["details"] == {"priority": 5}
    assert "queue:mail" in shell("audit", "--limit", "5", "--url", shell.url).stdout


def test_why_a_worker_gets_nothing(shell: Shell) -> None:
    shell("explain", "--url", shell.url, code=2)
    shell("explain", "--worker", "beef", "--url", shell.url, code=3)
