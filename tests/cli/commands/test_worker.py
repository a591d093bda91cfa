"""The worker command as real processes: signals, supervision, health."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest

from headrace.cli.commands.worker import Options
from headrace.cli.options import Address
from tests.cli.conftest import Shell
from tests.cli.patience import until_sync
from tests.support.servers import daemons

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(240),
]


def status_of(shell: Shell, id: str) -> str:
    return str(shell.json("show", id, "--url", shell.url)["status"])


def await_status(shell: Shell, id: str, status: str) -> None:
    until_sync(lambda: status_of(shell, id) == status, what=lambda: status_of(shell, id))


def alive(shell: Shell) -> list[int]:
    return [row["info"]["pid"] for row in shell.json("workers", "--url", shell.url) if row["alive"]]


def test_a_burst_ends_when_the_work_is_done(shell: Shell) -> None:
    ids = [shell.submit("add", f"a={number}") for number in range(10)]
    shell.work()
    assert {status_of(shell, id) for id in ids} == {"completed"}


def test_worker_events_are_json_lines(shell: Shell) -> None:
    shell.submit("add", "a=1")
    lines = [json.loads(line) for line in shell("worker", "quick", "--burst", "--json").stdout.splitlines()]
    assert lines[0]["event"] == "started"
    assert lines[0]["tasks"] == ["add", "boom", "chatty", "resize", "slow"]
    assert (lines[-1]["event"], lines[-1]["done"]) == ("stopped", 1)


def test_only_asked_queues_are_served(shell: Shell) -> None:
    plain, picture = shell.submit("add", "a=1"), shell.submit("resize", "image=x")
    shell("worker", "quick", "--burst", "--queues", "images,other")
    assert (status_of(shell, plain), status_of(shell, picture)) == ("queued", "completed")


@pytest.mark.parametrize("flag", ["--tasks", "--queues"])
def test_an_empty_name_does_not_mean_all(shell: Shell, flag: str) -> None:
    assert f"{flag} names nothing" in shell("worker", "quick", flag, "", "--burst", code=2).stderr


def test_a_worker_needs_an_app_with_tasks(shell: Shell) -> None:
    assert "no tasks to run" in shell("worker", "--url", shell.url, code=2).stderr
    assert "no module named" in shell("worker", "nowhere:app", code=2).stderr


def test_the_app_may_come_from_the_settings(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_APP", "quick:app")
    id = shell.submit("add", "a=1")
    shell("worker", "--burst")
    assert shell.json("show", id)["status"] == "completed"


def test_one_signal_lets_jobs_finish(shell: Shell) -> None:
    id = shell.submit("slow")
    worker = shell.start("worker", "quick:app")
    await_status(shell, id, "running")
    worker.send_signal(signal.SIGTERM)
    until_line(worker, "stopping: 1 running have 15 s")
    (shell.folder / "go").touch()
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert status_of(shell, id) == "completed"


def test_what_does_not_finish_in_the_grace_is_handed_back_uncharged(shell: Shell) -> None:
    id = shell.submit("slow")
    worker = shell.start("worker", "quick:app", "--grace", "100ms")
    await_status(shell, id, "running")
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    job = shell.json("show", id, "--url", shell.url)
    assert (job["status"], job["charged"]) == ("queued", 0)


def test_the_second_signal_stops_at_once(shell: Shell) -> None:
    id = shell.submit("slow")
    worker = shell.start("worker", "quick:app", "--grace", "60")
    await_status(shell, id, "running")
    worker.send_signal(signal.SIGTERM)
    assert worker.stderr is not None
    until_line(worker, "stopping")
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=60)
    assert worker.returncode == 128 + signal.SIGINT


def until_line(child: subprocess.Popen[str], word: str) -> str:
    assert child.stderr is not None
    for line in child.stderr:
        if word in line:
            return line
    raise AssertionError(f"{word!r} was never said")


def test_health_and_metrics_are_served(shell: Shell) -> None:
    port = daemons.free_port()
    worker = shell.start("worker", "quick:app", "--health", f"127.0.0.1:{port}")
    until_line(worker, "on sqlite")
    until_sync(lambda: ask(port, "/healthz")[0] == 200)
    told = json.loads(ask(port, "/healthz")[1])
    assert (told["healthy"], told["state"], told["busy"], told["concurrency"]) == (True, "running", 0, 10)
    assert "headrace_worker_silence_seconds" in ask(port, "/metrics")[1]
    worker.terminate()
    worker.communicate(timeout=60)
    assert worker.returncode == 0


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_taken_health_port_is_told(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = shell("worker", "quick", "--health", f"127.0.0.1:{taken.getsockname()[1]}", code=2)
    assert "cannot listen on 127.0.0.1" in result.stderr


def test_every_process_has_a_health_port_of_its_own() -> None:
    options = Options(
        concurrency=3,
        queues=("a",),
        tasks=("add", "resize"),
        offers=("gpu=true",),
        burst=True,
        imports=("m",),
        health=Address("::1", 80),
        grace=1.5,
    )
    words = "--concurrency 3 --grace 1.5 --queues a --tasks add --tasks resize --offer gpu=true --import m --burst"
    words += " --log-format text --health [::1]:82"
    assert options.flags(2) == words.split()
    free = replace(options, health=Address("::1", 0))
    assert free.flags(2)[-2:] == ["--health", "[::1]:0"]


def test_a_killed_process_is_replaced_and_sigterm_ends_all(shell: Shell) -> None:
    supervisor = shell.start("worker", "quick:app", "--processes", "2")
    until_sync(lambda: len(alive(shell)) == 2)
    first = alive(shell)
    os.kill(first[0], signal.SIGKILL)
    line = until_line(supervisor, "was killed by SIGKILL")
    assert str(first[0]) in line
    until_sync(lambda: len(set(alive(shell)) - set(first)) == 1)
    id = shell.submit("add", "a=1")
    await_status(shell, id, "completed")
    supervisor.send_signal(signal.SIGTERM)
    supervisor.communicate(timeout=60)
    assert supervisor.returncode == 0
    # The killed one may stay on the books until its lease is over; none of the others is there any more.
    assert set(alive(shell)) <= {first[0]}


def test_processes_end_with_a_supervisor_killed_hard(shell: Shell) -> None:
    supervisor = shell.start("worker", "quick:app", "--processes", "2")
    until_sync(lambda: len(alive(shell)) == 2)
    supervisor.kill()
    # Their stderr is ours: it ends when the last of them has.
    supervisor.communicate(timeout=60)
    assert alive(shell) == []


def test_a_burst_of_several_processes_ends(shell: Shell) -> None:
    ids = [shell.submit("add", f"a={number}") for number in range(5)]
    supervisor = shell.start("worker", "quick:app", "--processes", "2", "--burst")
    supervisor.communicate(timeout=60)
    assert supervisor.returncode == 0
    assert {status_of(shell, id) for id in ids} == {"completed"}


def test_processes_that_cannot_start_end_with_their_error(shell: Shell) -> None:
    supervisor = shell.start("worker", "nowhere:app", "--processes", "2")
    _, said = supervisor.communicate(timeout=60)
    assert supervisor.returncode == 2
    assert "no module named 'nowhere'" in said


LEAVES = """
import asyncio, logging, os, sys
from headrace import App, Retry

if os.environ.get("LOGGING"):
    logging.basicConfig(level=os.environ["LOGGING"])

app = App("sqlite:///jobs.db")

async def leave(how: str) -> None:
    if how == "sys.exit":
        sys.exit(3)
    raise KeyboardInterrupt

@app.task(retry=Retry(0))
async def leaves(how: str) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(leave(how))

@app.task
async def fine(secret: str = "xyzzy") -> str:
    return "fine"

@app.task(retry=Retry(0))
async def boom(secret: str = "xyzzy") -> None:
    raise ValueError("no route")
"""


@pytest.fixture
def leaving(shell: Shell) -> Iterator[Shell]:
    """A folder with leaving.py as well."""
    (shell.folder / "leaving.py").write_text(LEAVES)
    sys.modules.pop("leaving", None)
    yield shell
    sys.modules.pop("leaving", None)


def test_only_signals_stop_a_worker(leaving: Shell) -> None:
    shell = leaving
    worker = shell.start("worker", "leaving:app")
    for how in ("sys.exit", "interrupt"):
        id = shell("submit", "leaves", f"how={how}", "--app", "leaving").stdout.strip()
        await_status(shell, id, "failed")
        error = shell.json("show", id, "--url", shell.url)["error"]["type"]
        assert error == ("SystemExit" if how == "sys.exit" else "KeyboardInterrupt")
    id = shell("submit", "fine", "--app", "leaving").stdout.strip()
    await_status(shell, id, "completed")
    worker.send_signal(signal.SIGINT)
    _, said = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert said.count("was raised on the worker's loop") == 2
    assert "stopped: 1 done, 2 failed" in said


@pytest.mark.parametrize("setup", ["", "INFO", "WARNING"])
@pytest.mark.parametrize("flags", [(), ("-v",), ("-v", "--processes", "2")])
def test_log_lines_appear_once(
    leaving: Shell, setup: str, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the App sets up its logging: a failure is one line, and starts and ends are said only if asked for."""
    shell = leaving
    ids = [shell("submit", task, "--app", "leaving").stdout.strip().replace("-", "")[-8:] for task in ("fine", "boom")]
    monkeypatch.setenv("LOGGING", setup)
    worker = shell.start("worker", "leaving:app", "--burst", *flags)
    out, said = worker.communicate(timeout=120)
    assert worker.returncode == 0, said
    assert out == ""
    failure = f"boom {ids[1]}: attempt 1 of 1 failed: ValueError: no route; dead letter (retries exhausted)"
    assert said.count(failure) == 1
    assert said.count(ids[1]) == (2 if flags else 1), said
    assert said.count(f"fine {ids[0]}: attempt 1 of 4 starts") == said.count(f"fine {ids[0]}: completed") == bool(flags)
    assert ("WARNING:headrace.worker:" + failure in said) is bool(setup), "in the App's own way, if it has one"
    assert "xyzzy" not in said


def test_with_json_log_lines_are_events(shell: Shell) -> None:
    shell.submit("boom")
    lines = [json.loads(line) for line in shell("worker", "quick", "--burst", "--json").stdout.splitlines()]
    assert [(one["level"], "attempt 1 of 2 failed" in one["message"]) for one in lines if one["event"] == "log"][
        :1
    ] == [("warning", True)]


def test_reload_needs_its_extra(shell: Shell) -> None:
    if importlib.util.find_spec("watchfiles") is None:
        assert 'pip install "headrace[reload]"' in shell("worker", "quick", "--reload", code=2).stderr


def test_a_worker_offers_and_is_narrowed(shell: Shell) -> None:
    needs, plain = shell.submit("add", "a=1", "--require", "gpu_memory_gb=24"), shell.submit("add", "a=2")
    other = shell.submit("resize", "image=x", "--require", "gpu_memory_gb=24")
    shell("worker", "quick:app", "--burst")
    assert [shell.json("show", id, "--url", shell.url)["status"] for id in (needs, plain, other)] == [
        "queued",
        "completed",
        "queued",
    ]
    started = shell("worker", "quick:app", "--burst", "--offer", "gpu_memory_gb=48", "--tasks", "add,boom").stderr
    assert "add, boom; all queues, 10 at once, offers gpu_memory_gb=48" in started
    assert [shell.json("show", id, "--url", shell.url)["status"] for id in (needs, other)] == ["completed", "queued"]


def test_a_task_that_the_app_does_not_have_is_told(shell: Shell) -> None:
    result = shell("worker", "quick:app", "--burst", "--tasks", "ad", code=3)
    assert "this App has no task 'ad'; did you mean 'add'?" in result.stderr
    assert "'gpu' is not key=value" in shell("worker", "quick:app", "--offer", "gpu", code=2).stderr


def test_the_command_line_says_that_nobody_meets_a_requirement(shell: Shell) -> None:
    words = ("submit", "add", "a=1", "--require", "gpu_memory_gb=24", "--app", "quick:app")
    child = shell.start(*words)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0
    assert len(out.split()) == 1
    assert "no worker is alive, and jobs of 'add' require gpu_memory_gb ≥ 24: they wait for one that meets it" in err


def test_why_a_worker_gets_nothing_is_told(shell: Shell) -> None:
    worker = shell.start("worker", "quick:app", "--queues", "images", "--url", shell.url)
    until_sync(lambda: len(alive(shell)) == 1)
    shell.submit("add", "a=1")
    [row] = shell.json("workers", "--url", shell.url)
    told = shell("explain", "--worker", row["info"]["id"][-8:], "--url", shell.url).stdout
    assert "1 job is in queues that it does not serve: 'default'; it serves 'images'." in told
    facts = shell.json("explain", "--worker", row["info"]["id"], "--url", shell.url)["facts"]
    assert [fact["code"] for fact in facts] == ["worker_free", "queue_not_served"]
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
