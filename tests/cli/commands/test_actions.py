"""What a person does to jobs."""

from __future__ import annotations

from socket import gethostname

from tests.cli.conftest import Shell

NOBODY = "01990000-0000-7000-8000-0000deadbeef"


def test_every_job_has_its_own_verdict(shell: Shell) -> None:
    waiting, done = shell.submit("add", "a=1", "--delay", "1h"), shell.submit("add", "a=2")
    shell.work()
    verdicts = shell.json("cancel", waiting, done, NOBODY, "--url", shell.url, code=4)
    assert [verdict["verdict"] for verdict in verdicts] == ["done", "refused", "not_found"]
    assert [verdict["id"] for verdict in verdicts] == [waiting, done, NOBODY]
    assert [verdict["job"] and verdict["job"]["status"] for verdict in verdicts] == ["cancelled", "completed", None]
    result = shell("cancel", done, NOBODY, "--url", shell.url, code=4)
    assert len([line for line in result.stderr.splitlines() if line.startswith("error: ")]) == 2


def test_nobody_is_not_found(shell: Shell) -> None:
    shell("retry", NOBODY, "--url", shell.url, code=3)


def test_filters_need_a_yes(shell: Shell) -> None:
    for number in range(3):
        shell.submit("add", f"a={number}", "--delay", "1h")
    other = shell.submit("resize", "image=x", "--delay", "1h")
    result = shell("cancel", "--task", "add", "--url", shell.url, code=2)
    assert "this would cancel 3 jobs: say --yes" in result.stderr
    assert len(shell.json("cancel", "--task", "add", "--yes", "--url", shell.url)) == 3
    assert shell.json("show", other, "--url", shell.url)["status"] == "scheduled"
    assert "no jobs match" in shell("cancel", "--task", "add", "--yes", "--url", shell.url).stderr


def test_ids_and_filters_exclude_each_other(shell: Shell) -> None:
    shell("cancel", "--url", shell.url, code=2)
    shell("cancel", NOBODY, "--task", "add", "--url", shell.url, code=2)


def test_retry_rerun_and_discard(shell: Shell) -> None:
    id = shell.submit("boom", "--max-retries", "0")
    shell.work()
    [verdict] = shell.json("retry", id, "--url", shell.url)
    assert (verdict["job"]["status"], verdict["job"]["redrives"]) == ("queued", 1)
    shell.work()
    again = shell("rerun", id, "--url", shell.url).stdout.strip()
    assert shell.json("show", again, "--url", shell.url)["rerun_of"] == id
    assert "cancelled (discarded)" in shell("discard", id, "--url", shell.url).stdout
    shell("discard", id, "--url", shell.url, code=4)
    events = shell.json("show", id, "--url", shell.url)["events"]
    assert {"retry", "discard"} <= {event["verb"] for event in events}
    assert all(event["by"].endswith(f" on {gethostname()}") for event in events)


def test_a_retry_whose_key_is_taken_is_refused(shell: Shell) -> None:
    first = shell.submit("boom", "--max-retries", "0", "--dedup", "k")
    shell.work()
    holder = shell.submit("boom", "--dedup", "k", "--delay", "1h")
    [verdict] = shell.json("retry", first, "--url", shell.url, code=4)
    assert verdict["verdict"] == "refused"
    assert holder in verdict["message"]
    assert verdict["job"]["id"] == first


def test_many_refusals_are_one_line_with_counts(shell: Shell) -> None:
    ids = [shell.submit("add", f"a={number}") for number in range(7)]
    shell.work()
    for id in ids[:2]:
        shell("discard", id, "--url", shell.url)
    shell.submit("add", "a=9", "--delay", "1h")
    chosen = ("--status", "completed", "--status", "cancelled", "--status", "scheduled", "--yes", "--url", shell.url)
    result = shell("retry", *chosen, code=4)
    assert result.stderr.splitlines() == [
        "0 of 8 retried; cannot retry 8: 5 completed, 2 cancelled (discarded), 1 scheduled (--json names each)"
    ]
    verdicts = shell.json("retry", *chosen, code=4)
    assert len([one for one in verdicts if one["verdict"] == "refused" and one["id"] in one["message"]]) == 8


def test_many_ids_that_are_not_there_are_counted_beside_what_was_done(shell: Shell) -> None:
    waiting = [shell.submit("add", f"a={number}", "--delay", "1h") for number in range(2)]
    nobody = [f"01990000-0000-7000-8000-0000deadbe{number:02x}" for number in range(6)]
    result = shell("cancel", *waiting, *nobody, "--url", shell.url, code=3)
    assert result.stderr.splitlines() == ["2 of 8 cancelled; cannot cancel 6: 6 not found (--json names each)"]
    assert all(id in result.stdout for id in waiting)


def test_keys_that_others_hold_are_counted(shell: Shell) -> None:
    for number in range(6):
        shell.submit("boom", "--max-retries", "0", "--dedup", f"k{number}")
    shell.work()
    for number in range(6):
        shell.submit("boom", "--dedup", f"k{number}", "--delay", "1h")
    result = shell("retry", "--status", "failed", "--yes", "--url", shell.url, code=4)
    assert "0 of 6 retried; cannot retry 6: 6 whose dedup key another job holds" in result.stderr


def test_an_empty_text_is_no_filter(shell: Shell) -> None:
    """A variable that is not set must not choose all jobs."""
    shell.submit("add", "a=1", "b=2")
    assert "would match every job" in shell("cancel", "--text", "", "--yes", "--url", shell.url, code=2).stderr
    assert shell.json("jobs", "--url", shell.url)["items"][0]["status"] == "queued"
