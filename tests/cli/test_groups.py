"""Failures in groups, and acts by fingerprint."""

from __future__ import annotations

from tests.cli.conftest import Shell


def test_failures_come_in_groups_and_are_acted_on_by_fingerprint(shell: Shell) -> None:
    for what in ("one", "two"):
        shell.submit("boom", f"what={what}", "--max-retries", "0")
    shell.submit("add", "a=1")
    shell.work()
    [group] = shell.json("failures", "--url", shell.url)
    assert (group["task"], group["type"], group["place"]) == ("boom", "ValueError", "quick.py:boom")
    assert (group["jobs"], group["failed"], group["message"]) == (2, 2, "two")
    print_ = group["fingerprint"]
    told = shell("failures", "--url", shell.url).stdout
    for word in (print_, group["example"], "boom: ValueError at quick.py:boom: two"):
        assert word in told
    assert shell.json("jobs", "--fingerprint", print_, "--count", "--url", shell.url) == {"count": 2}
    refused = shell("retry", "--fingerprint", print_, "--url", shell.url, code=2)
    assert "this would retry 2 jobs: say --yes" in refused.stderr
    verdicts = shell.json("retry", "--fingerprint", print_, "--yes", "--url", shell.url)
    assert [one["verdict"] for one in verdicts] == ["done", "done"]
    assert shell("jobs", "--fingerprint", print_, "--status", "failed", "--count", "--url", shell.url).stdout == "0\n"


def test_nothing_fails(shell: Shell) -> None:
    shell.submit("add", "a=1")
    assert shell.json("failures", "--url", shell.url) == []
    assert "nothing fails" in shell("failures", "--url", shell.url).stderr


def test_jobs_are_chosen_by_reason_customer_and_time(shell: Shell) -> None:
    shell.submit("boom", "--max-retries", "0")
    kept = shell.submit("add", "a=1", "--customer", "ann")
    shell.work()
    again = shell("rerun", kept, "--url", shell.url).stdout.strip()

    def count(*words: str) -> int:
        found: int = shell.json("jobs", *words, "--count", "--url", shell.url)["count"]
        assert len(shell.json("jobs", *words, "--url", shell.url)["items"]) == found
        return found

    assert count("--since", "2h") == count("--since", "2001-01-01T00:00") == 3
    assert count("--until", "2h") == count("--finished-until", "2h") == 0
    assert count("--finished-since", "2h") == 2
    assert count("--reason", "retries_exhausted") == 1
    assert count("--reason", "timeout") == 0
    assert count("--customer", "ann", "--customer", "bob") == 2
    assert count("--task", "add", "--task", "boom") == 3
    assert count("--rerun-of", kept[-8:]) == 1
    assert shell.json("jobs", "--rerun-of", kept, "--url", shell.url)["items"][0]["id"] == again
    shell("jobs", "--worker", "01990000-0000-7000-8000-0000deadbeef", "--url", shell.url, code=3)
    for words, told in (
        (("--since", "soon"), "'soon' is neither a moment nor a length of time"),
        (("--since", "1h", "--until", "2h"), "created_before must be later than created_after"),
        (("--reason", "late"), "'late' is not one of"),
    ):
        assert told in shell("jobs", *words, "--url", shell.url, code=2).stderr
