"""Worker processes that are renewed after so many jobs, or at so much memory: real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from headrace import App
from headrace.cli.process.renewal import Limits, size
from headrace.core.job import Job
from tests.support.until import until

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="a supervisor needs a POSIX system"),
    pytest.mark.timeout(240),
]

PROGRAM = """
import asyncio, os
from pathlib import Path
from headrace import App

app, log, calls, held = App("sqlite:///jobs.db"), Path("log"), [], []

def last():
    return log.read_text().split()[-1]

@app.task
async def work(n: int) -> int:
    mine = str(os.getpid())
    with log.open("a") as file:
        file.write(mine + "\\n")
    calls.append(n)
    if len(calls) > 3:
        while last() == mine:  # until another process works
            await asyncio.sleep(0.01)
    return int(mine)

@app.task
async def grow() -> int:
    held.append(b"x" * 150_000_000)
    return os.getpid()
"""


@contextmanager
def worker(folder: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A worker in a folder, stopped in good order at the end."""
    (folder / "shop.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "headrace", "worker", "shop:app", "--grace", "0", *flags]
    with (folder / "err").open("w") as err:
        process = subprocess.Popen(command, cwd=folder, stderr=err, stdin=subprocess.DEVNULL, text=True)
    try:
        yield process
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, (folder / "err").read_text()
    finally:
        process.kill()
        process.wait()


async def ended(app: App, n: int) -> list[Job]:
    """The jobs, when so many have completed."""

    async def all_are() -> bool:
        return len((await app.jobs.list(status="completed", limit=100)).items) == n

    await until(all_are, within=120)
    return sorted((await app.jobs.list(status="completed", limit=100)).items, key=lambda job: job.seq)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_after_so_many_jobs_another_takes_its_place_while_it_finishes_what_it_runs(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def work(n: int) -> int:
        return n

    async with app:
        await work.map([(n,) for n in range(10)])
        with worker(tmp_path, "--max-jobs", "3", "--concurrency", "1"):
            jobs = await ended(app, 10)
            pids = list(dict.fromkeys(job.result for job in jobs))
            assert [[job.result for job in jobs].count(pid) for pid in pids] == [4, 4, 2]
            await until(lambda: not any(map(is_alive, pids[:2])), within=120)
        histories = [await app.jobs.history(job.id) for job in jobs]
    assert [job.charged for job in jobs] == [1] * 10
    assert [len(history.attempts) for history in histories] == [1] * 10, "nobody was handed back what it had begun"
    err = (tmp_path / "err").read_text()
    assert [f"worker process {pid} is renewed after 3 jobs" in err for pid in pids] == [True, True, False]
    assert "exit code" not in err


async def test_at_so_much_memory_too(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def grow() -> int:
        return 0

    async with app:
        with worker(tmp_path, "--max-memory", "150MB"):
            [first] = [await (await grow.submit()).result(timeout=120)]
            await until(lambda: not is_alive(first), within=120)
        assert f"worker process {first} is renewed at " in (tmp_path / "err").read_text()


@pytest.mark.parametrize(
    ("text", "number"),
    [("512MB", 512 * 10**6), ("1.5GiB", 3 * 2**29), ("2g", 2 * 10**9), ("65536 KiB", 2**26), ("100000000", 10**8)],
)
def test_sizes(text: str, number: int) -> None:
    assert size(text) == number


@pytest.mark.parametrize("text", ["512", "200000", "64KiB", "9.9MB"])
def test_what_is_less_than_any_worker_takes_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"bytes, and a worker takes more: say it as 512MB"):
        size(text)


@pytest.mark.parametrize("text", ["", "much", "-1MB", "0", "1TBX", "MB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="512MB"):
        size(text)


@pytest.mark.parametrize(
    ("limits", "jobs", "memory", "why"),
    [
        (Limits(1000), 999, None, None),
        (Limits(1000), 1000, None, "after 1,000 jobs"),
        (Limits(1), 1, None, "after 1 job"),
        (Limits(None, 512 * 10**6), 5, 512 * 10**6 - 1, None),
        (Limits(None, 512 * 10**6), 5, 530 * 10**6, "at 530 MB of memory (--max-memory 512 MB)"),
        (Limits(None, 512 * 10**6), 0, 530 * 10**6, None),
        (Limits(), 10**9, 10**12, None),
    ],
)
def test_when_it_is_due(limits: Limits, jobs: int, memory: int | None, why: str | None) -> None:
    assert limits.due(jobs, memory) == why
    assert bool(limits) is any(one is not None for one in (limits.jobs, limits.memory))


def test_its_flags_are_those_it_was_made_from() -> None:
    assert Limits(5, 1000).flags() == ["--max-jobs", "5", "--max-memory", "1000"]
    assert Limits().flags() == []
