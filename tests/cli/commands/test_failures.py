"""Failures in groups, and acts by fingerprint."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import click
import pytest
from msgspec.structs import replace

from headrace.cli.ids import resolve_fingerprint
from headrace.core.stats.failures import FailureGroup, grouped
from headrace.core.status import Status
from tests.cli.conftest import Shell
from tests.core.stand import stand


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


def test_a_fingerprint_can_be_cut(shell: Shell) -> None:
    shell.submit("boom", "--max-retries", "0")
    shell.work()
    [group] = shell.json("failures", "--url", shell.url)
    part = group["fingerprint"][:4]
    assert shell.json("jobs", "--fingerprint", part.upper(), "--count", "--url", shell.url) == {"count": 1}
    assert shell.json("failures", "--fingerprint", f"{part}…", "--url", shell.url) == [group]
    assert len(shell.json("discard", "--fingerprint", part, "--yes", "--url", shell.url)) == 1
    # Also of jobs that are no longer among the failures.
    assert shell.json("jobs", "--fingerprint", part, "--count", "--url", shell.url) == {"count": 1}
    other = "0000" if part != "0000" else "1111"
    assert "no fingerprint begins with" in shell("jobs", "--fingerprint", other, "--url", shell.url, code=3).stderr
    for wrong in ("abc", "not hex"):
        told = shell("jobs", "--fingerprint", wrong, "--url", shell.url, code=2).stderr
        assert f"'{wrong}' is not a fingerprint: give at least 4 of its first digits" in told


async def test_a_part_that_fits_several_fingerprints_is_refused() -> None:
    async def failures(**_: object) -> list[FailureGroup]:
        return [group, replace(group, fingerprint="abcd00000002")]

    group = grouped([stand(Status.FAILED)], 1)[0]
    group = replace(group, fingerprint="abcd00000001")
    app: Any = SimpleNamespace(jobs=SimpleNamespace(failures=failures))
    with pytest.raises(click.UsageError, match="'abcd' fits several fingerprints: abcd00000001, abcd00000002"):
        await resolve_fingerprint(app, "abcd")
    assert await resolve_fingerprint(app, "abcd00000002") == "abcd00000002"


def test_nothing_fails(shell: Shell) -> None:
    shell.submit("add", "a=1")
    assert shell.json("failures", "--url", shell.url) == []
    assert "nothing has failed" in shell("failures", "--url", shell.url).stderr
    assert "no failures match" in shell("failures", "--task", "add", "--url", shell.url).stderr


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
        (("--since", "1h", "--until", "2h"), "--until must be later than --since: nothing is between"),
        (("--finished-since", "1h", "--finished-until", "2h"), "--finished-until must be later than --finished-since"),
        (("--since", "999999d"), "'999999d' is longer than a century"),
        (("--until", "-2h"), "'-2h' has a sign: say 2h"),
        (("--reason", "late"), "'late' is not one of"),
    ):
        assert told in shell("jobs", *words, "--url", shell.url, code=2).stderr


def test_recent_errors_are_of_attempts_and_name_a_job(shell: Shell) -> None:
    for _ in range(5):
        shell.submit("boom", "what=secret", "--max-retries", "0")
    shell.work()
    [error] = shell.json("failures", "--recent", "--url", shell.url)
    assert (error["task"], error["type"], error["attempts"]) == ("boom", "ValueError", 5)
    told = shell("failures", "--recent", "--task", "boom", "--url", shell.url).stdout
    assert error["example"] in told
    assert "boom: ValueError at quick.py:boom" in told
    told = shell("failures", "--recent", "--task", "add", "--url", shell.url).stderr
    assert told == "no attempt has failed within the hour\n"
    refused = shell("failures", "--recent", "--customer", "ann", "--url", shell.url, code=2).stderr
    assert "--recent knows no jobs, so it cannot choose by customer" in refused
    found = shell("doctor", "--url", shell.url, code=1).stdout
    assert "headrace failures --recent --task boom" in " ".join(found.split())
