"""Looking at jobs."""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

import pytest
from msgspec.structs import replace

from headrace import App
from headrace.core.status import Status
from tests.cli.conftest import Shell
from tests.support.apps import busy_worker

pytestmark = pytest.mark.timeout(240)


def test_only_statuses_that_a_job_may_have_are_offered(shell: Shell) -> None:
    told = " ".join(shell("jobs", "--help").stdout.split())
    assert "(waiting, scheduled, queued, assigned, accepted, running, retrying, completed, failed, cancelled)." in told
    assert "'pending' is not one of" in shell("jobs", "--status", "pending", "--url", shell.url, code=2).stderr


def test_jobs_are_listed_newest_first_and_filtered(shell: Shell) -> None:
    ids = [shell.submit("add", f"a={number}") for number in range(3)]
    picture = shell.submit("resize", "image=cat.png")
    listed = shell.json("jobs", "--url", shell.url)
    assert [job["id"] for job in listed["items"]] == [picture, *reversed(ids)]
    for words in (["--task", "resize"], ["--queue", "images"], ["--tag", "pictures"], ["--text", "CAT"]):
        assert [job["id"] for job in shell.json("jobs", *words, "--url", shell.url)["items"]] == [picture]
    assert shell.json("jobs", "--status", "failed", "--url", shell.url)["items"] == []
    assert "no jobs match" in shell("jobs", "--status", "failed", "--url", shell.url).stderr


def test_suspects_are_found_and_named(shell: Shell) -> None:
    shell.submit("add", "a=1")
    bad = shell.submit("add", "a=2")

    async def suspected() -> None:
        async with App(shell.url) as app:
            await app.jobs.handle(bad).cancel()
            job = replace(await app.jobs.get(bad), id=uuid4(), status=Status.QUEUED, reason=None, finished_at=None)
            await app.session.engine.jobs.insert([replace(job, suspect=2, attempt=2, charged=2)], job.created_at)

    asyncio.run(suspected())
    [job] = shell.json("jobs", "--suspect", "--url", shell.url)["items"]
    assert (job["suspect"], job["spared"]) == (2, 0)
    words = "ran when its workers died, 2 times; it is in quarantine: it runs beside no other such job"
    assert words in shell("show", job["id"], "--url", shell.url).stdout
    assert f"It is suspect: it {words}." in shell("explain", job["id"], "--url", shell.url).stdout.replace("\n", " ")
    shell("cancel", "--suspect", "--yes", "--url", shell.url)
    statuses = [one["status"] for one in shell.json("jobs", "--url", shell.url)["items"]]
    assert sorted(statuses) == ["cancelled", "cancelled", "queued"]


def test_pages_follow_one_another(shell: Shell) -> None:
    ids = [shell.submit("add", f"a={number}") for number in range(5)]
    seen, cursor = [], None
    while True:
        page = shell.json("jobs", "--limit", "2", *(["--cursor", cursor] if cursor else []), "--url", shell.url)
        seen += [job["id"] for job in page["items"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]
    assert len(shell.json("jobs", "--all", "--url", shell.url)["items"]) == 5
    first = shell("jobs", "--limit", "2", "--url", shell.url)
    assert "more: --cursor" in first.stderr
    assert ids[-1] in first.stdout


def test_show_tells_the_whole_story(shell: Shell) -> None:
    id = shell.submit("boom")
    for _ in range(2):
        shell.work()
    record = shell.json("show", id, "--url", shell.url)
    if record["status"] == "retrying":
        shell.work()
        record = shell.json("show", id, "--url", shell.url)
    assert (record["status"], record["reason"]) == ("failed", "retries_exhausted")
    assert [attempt["outcome"] for attempt in record["attempts"]] == ["failed", "failed"]
    assert all(attempt["worker"] for attempt in record["attempts"])
    text = shell("show", id, "--url", shell.url).stdout
    for word in (id, "boom", "retries exhausted", "ValueError: boom", "attempt 1", "attempt 2", "█"):
        assert word in text


def test_part_of_an_id_is_enough_if_it_fits_one_job(shell: Shell) -> None:
    ids = [shell.submit("add", f"a={number}") for number in range(2)]
    assert shell.json("show", ids[0][-8:], "--url", shell.url)["id"] == ids[0]
    result = shell("show", ids[0][:4], "--url", shell.url, code=2)
    assert "fits several jobs" in result.stderr
    shell("show", "ffffffff", "--url", shell.url, code=3)
    shell("show", "not-an-id", "--url", shell.url, code=2)
    shell("show", "01990000-0000-7000-8000-0000deadbeef", "--url", shell.url, code=3)


def test_watch_follows_to_the_end(shell: Shell) -> None:
    good, bad = shell.submit("resize", "image=x"), shell.submit("boom", "--max-retries", "0")
    shell.work()
    lines = [json.loads(line) for line in shell("watch", good, "--url", shell.url, "--json").stdout.splitlines()]
    assert lines[-1]["status"] == "completed"
    assert "failed" in shell("watch", bad, "--url", shell.url, code=1).stdout
    waiting = shell.submit("add", "a=1")
    shell("watch", waiting, "--timeout", "20ms", "--url", shell.url, code=1)


def test_watch_sees_progress(shell: Shell) -> None:
    id = shell.submit("slow", "seconds=0.2")
    watcher = shell.start("watch", id, "--url", shell.url, "--json")
    assert watcher.stdout is not None
    assert json.loads(watcher.stdout.readline())["status"] == "queued"
    worker = shell.start("worker", "quick:app", "--burst")
    rest = [json.loads(line)["status"] for line in watcher.stdout.read().splitlines()]
    assert watcher.wait(60) == 0
    assert worker.wait(60) == 0
    assert rest[-1] == "completed"


def test_explain_says_why(shell: Shell) -> None:
    id = shell.submit("add", "a=1", "--delay", "1h")
    assert shell("explain", id, "--url", shell.url).stdout.strip()
    assert shell.json("explain", id, "--url", shell.url)["id"] == id


def test_explain_tells_the_place_in_line_and_the_estimated_start(shell: Shell) -> None:
    async def hire() -> None:
        async with App(shell.url) as app:
            await busy_worker(app.session.engine, "add")

    for _ in range(3):
        shell.submit("add", "a=1")
    shell.work()
    asyncio.run(hire())
    shell.submit("add", "a=1")
    id = shell.submit("add", "a=1")
    facts = {fact["code"]: fact["data"] for fact in shell.json("explain", id, "--url", shell.url)["facts"]}
    assert facts["position"] == {"position": 2, "ahead": 1, "at_least": False, "approximate": False}
    assert facts["estimate"]["seconds"] == pytest.approx(2 / facts["estimate"]["jobs_per_second"])
    told = shell("explain", id, "--url", shell.url).stdout
    assert "It is number 2 in its queue: 1 job is before it." in told
    assert "It may start about" in told


@pytest.mark.parametrize("colour", [True, False])
def test_no_colour_when_nobody_looks(shell: Shell, colour: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if colour:
        monkeypatch.setenv("NO_COLOR", "1")
    shell.submit("add", "a=1")
    assert "\x1b" not in shell("jobs", "--url", shell.url).output


@pytest.mark.parametrize("command", ["jobs", "stats", "queues", "workers", "tasks", "schedules"])
def test_looking_makes_no_store(shell: Shell, command: str) -> None:
    said = shell(command, "--url", "sqlite:///typo.db", code=5).stderr
    assert "there is no store at sqlite:///typo.db yet" in said
    assert not (shell.folder / "typo.db").exists()


def test_statuses_are_shown_and_chosen_in_the_words_of_a_design(shell: Shell) -> None:
    url = ("--url", shell.url)
    shell.submit("boom", "what=first", "--max-retries", "0")
    shell.work()
    shell.submit("add", "a=1")
    later = shell.submit("add", "a=2", "--delay", "1h")
    assert {job["status"] for job in shell.json("jobs", "--words", "emprops", *url)["items"]} == {
        "failed",
        "queued",
        "scheduled",
    }
    listed = shell("jobs", "--words", "emprops", *url).stdout
    assert all(f" {word} " in listed for word in ("FAILED", "QUEUED", "scheduled"))
    found = shell.json("jobs", "--status", "PENDING", "--words", "surefire", *url)["items"]
    assert [job["status"] for job in found] == ["Pending", "Pending"]
    assert shell.json("jobs", "--status", "timeout", "--count", "--words", "emprops", *url) == {"count": 0}
    assert shell.json("jobs", "--status", "Failed", "--count", *url) == {"count": 1}
    shown = shell("show", later, "--words", "jobmaster", *url).stdout
    assert shown.count("HeldOnMaster") == 2  # in its head, and in its timeline
    assert shell.json("show", later, "--words", "jobmaster", *url)["status"] == "HeldOnMaster"
    assert shell.json("stats", "--words", "osqueue", *url)["statuses"] == {
        "exhausted": 1,
        "unclaimed": 1,
        "scheduled": 1,
    }
    assert "Pending" in shell("queues", "--words", "surefire", *url).stdout
    [verdict] = shell.json("cancel", later, "--words", "asyncendpoints", *url)
    assert verdict["job"]["status"] == "Canceled"
    assert "CANCELLED" in shell("watch", later, "--words", "emprops", *url, code=1).stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--words", "klingon"], "'klingon' is not one of 'headrace', 'emprops'"),
        (["--words", "osqueue", "--status", "queued"], "'queued' is not one of 'waiting', 'scheduled', 'unclaimed'"),
        (
            ["--words", "emprops", "--status", "timeout", "--status", "queued"],
            "--status: timeout is a reason of failed",
        ),
        (["--words", "emprops", "--status", "timeout", "--reason", "lost"], "timeout is the reason timeout: name no"),
        (["--words", "emprops", "--status", "pending"], "'pending' is not one of"),
    ],
)
def test_words_that_cannot_be_meant_are_refused(shell: Shell, words: list[str], text: str) -> None:
    assert text in " ".join(shell("jobs", *words, "--url", shell.url, code=2).stderr.split())
