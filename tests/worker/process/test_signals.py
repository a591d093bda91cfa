"""``await app.worker().run()`` as a program of a user's own: what a signal to the real process does to it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from headrace import App, Job, Status

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(240),
]

BOTH = (signal.SIGINT, signal.SIGTERM)

PROGRAM = """
import asyncio, logging, os, signal, sys, threading, time
from pathlib import Path
from headrace import App, Retry

app = App("sqlite:///jobs.db?synchronous=normal")

@app.task(retry=Retry(max_retries=0))
async def slow():
    print("running", flush=True)
    while not Path("go").exists():
        await asyncio.sleep(0.01)

@app.task(retry=Retry(max_retries=0))
async def blocks():
    print("running", flush=True)
    while True:
        time.sleep(0.01)

logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
logging.getLogger("headrace").setLevel(logging.INFO)

async def main():
    async with app:
        {body}

def handlers():
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

{start}
"""

STARTS = {"asyncio": "asyncio.run(main())", "uvloop": "import uvloop; uvloop.run(main())"}


class Program:
    """A user's program in a process of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.app = app = App(f"sqlite:///{place / 'jobs.db'}?synchronous=normal")

        @app.task
        async def slow() -> None: ...

        @app.task
        async def blocks() -> None: ...

    def submit(self, task: str = "slow") -> UUID:
        async def submit() -> UUID:
            async with self.app:
                return (await self.app.submit(task, {})).id

        return asyncio.run(submit())

    def job(self, id: UUID) -> Job:
        async def get() -> Job:
            async with self.app:
                return await self.app.jobs.get(id)

        return asyncio.run(get())

    @contextmanager
    def running(self, body: str, start: str = "asyncio", *, shell: str = "") -> Iterator[subprocess.Popen[str]]:
        """Run this in ``main``; ``shell`` is what the shell does that starts the program."""
        text = PROGRAM.format(body=body.replace("\n", "\n        "), start=STARTS[start])
        command = ["/bin/sh", "-c", f'{shell} exec "$0" -c "$1"', sys.executable, text]
        with subprocess.Popen(command, cwd=self.place, stdout=subprocess.PIPE, text=True) as child:
            try:
                yield child
            finally:
                child.kill()


def until_line(child: subprocess.Popen[str], word: str) -> str:
    assert child.stdout is not None
    for line in child.stdout:
        if word in line:
            return line
    raise AssertionError(f"{word!r} was never said")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.mark.parametrize("loop", STARTS)
@pytest.mark.parametrize("number", BOTH)
def test_a_signal_lets_jobs_finish_and_the_program_go_on(program: Program, number: signal.Signals, loop: str) -> None:
    id = program.submit()
    body = "before = handlers()\nawait app.worker().run()\nprint('returned', handlers() == before, flush=True)"
    with program.running(body, loop) as child:
        until_line(child, "running")
        child.send_signal(number)
        until_line(child, f"{number.name}: stopping in good order; once more to stop at once")
        (program.place / "go").touch()
        assert until_line(child, "returned") == "returned True\n"
        assert child.wait(60) == 0
    assert program.job(id).status is Status.COMPLETED


def test_what_does_not_finish_in_the_grace_is_handed_back_uncharged(program: Program) -> None:
    id = program.submit()
    with program.running("await app.worker(grace=0.05).run()\nprint('returned', flush=True)") as child:
        until_line(child, "running")
        child.send_signal(signal.SIGTERM)
        until_line(child, "returned")
        assert child.wait(60) == 0
    job = program.job(id)
    assert (job.status, job.charged) == (Status.QUEUED, 0)


@pytest.mark.parametrize("loop", STARTS)
def test_the_second_signal_stops_at_once(program: Program, loop: str) -> None:
    id = program.submit()
    body = "await app.worker(grace=3600).run()\nprint('returned', flush=True)"
    with program.running(body, loop) as child:
        until_line(child, "running")
        child.send_signal(signal.SIGTERM)
        until_line(child, "stopping in good order")
        child.send_signal(signal.SIGINT)
        until_line(child, "SIGINT again: stopping at once")
        until_line(child, "returned")
        assert child.wait(60) == 0
    assert program.job(id).status is Status.QUEUED


def test_the_third_signal_does_what_it_does_without_headrace(program: Program) -> None:
    program.submit("blocks")
    with program.running("await app.worker().run()") as child:
        until_line(child, "running")
        while child.poll() is None:  # what is pending together arrives as one; each is sent until it is heard
            for number in BOTH:
                child.send_signal(number)
            try:
                child.wait(0.05)
            except subprocess.TimeoutExpired:
                pass
        assert child.returncode in (-signal.SIGTERM, -signal.SIGINT)


@pytest.mark.parametrize("loop", STARTS)
@pytest.mark.parametrize(
    "own",
    [
        # Not by print: the handler may be in the midst of one, and a second one within it is refused.
        r"signal.signal(signal.SIGTERM, lambda number, frame: os.write(1, b'own\n'))",
        "asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: print('own', flush=True))",
    ],
    ids=["signal", "loop"],
)
def test_a_signal_that_the_program_answers_itself_is_left_to_it(program: Program, own: str, loop: str) -> None:
    id = program.submit()
    with program.running(f"{own}\nawait app.worker().run()\nprint('returned', flush=True)", loop) as child:
        until_line(child, "running")
        child.send_signal(signal.SIGTERM)
        assert until_line(child, "") == "own\n"
        child.send_signal(signal.SIGINT)  # nobody but us answers this one
        until_line(child, "SIGINT: stopping in good order")
        (program.place / "go").touch()
        until_line(child, "returned")
        assert child.wait(60) == 0
    assert program.job(id).status is Status.COMPLETED


def test_an_interrupt_that_is_ignored_stays_ignored(program: Program) -> None:
    # A shell starts what it puts in the background with SIGINT ignored.
    program.submit()
    with program.running("await app.worker().run()\nprint('returned', flush=True)", shell="trap '' INT;") as child:
        until_line(child, "running")
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGTERM)
        assert until_line(child, "stopping").startswith("SIGTERM: ")
        (program.place / "go").touch()
        assert until_line(child, "") == "returned\n"


@pytest.mark.parametrize(
    "body", ["await app.worker().run(signals=False)", "async with app.worker(): await asyncio.sleep(3600)"]
)
def test_signals_are_left_alone_where_that_is_asked_for_and_by_a_block(program: Program, body: str) -> None:
    program.submit()
    with program.running(body) as child:
        until_line(child, "running")
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == -signal.SIGTERM


def test_all_workers_of_a_program_are_stopped(program: Program) -> None:
    ids = [program.submit() for _ in range(2)]
    body = """before = handlers()
first = asyncio.create_task(app.worker(concurrency=1, burst=True, queues=["none"]).run())
others = [asyncio.create_task(app.worker(concurrency=1).run()) for _ in range(2)]
await first  # whoever leaves first takes nothing away from the others
print("ready", flush=True)
await asyncio.gather(*others)
print("returned", handlers() == before, flush=True)"""
    with program.running(body) as child:
        said = [until_line(child, word) for word in ("r", "r", "r")]
        assert sorted(said) == ["ready\n", "running\n", "running\n"]
        child.send_signal(signal.SIGTERM)
        until_line(child, "stopping in good order")
        (program.place / "go").touch()
        assert until_line(child, "returned") == "returned True\n"
        assert child.wait(60) == 0
    assert {program.job(id).status for id in ids} == {Status.COMPLETED}


def test_on_another_thread_it_runs_without_signals() -> None:
    app = App("memory://")

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    async def main() -> int:
        async with app:
            job = await add.submit(1, 2)
            await app.worker(burst=True).run()
            return await job.result(timeout=1)

    before, found = [signal.getsignal(number) for number in BOTH], list[int]()
    thread = threading.Thread(target=lambda: found.append(asyncio.run(main())))
    thread.start()
    thread.join(60)
    assert found == [3]
    assert [signal.getsignal(number) for number in BOTH] == before


async def test_what_somebody_installs_meanwhile_is_not_taken_away() -> None:
    app = App("memory://")

    @app.task
    async def takes_over() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    before = signal.getsignal(signal.SIGTERM)
    try:
        async with app:
            await takes_over.submit()
            await app.worker(burst=True).run()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
