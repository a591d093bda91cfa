"""The supervisor with real processes: small programs instead of workers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.cli import supervisor as module
from headrace.cli.failures import DONE, FAILED, USAGE
from headrace.cli.supervisor import Supervisor
from tests.support.until import until

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="--processes needs a POSIX system"),
    pytest.mark.timeout(240),
]

SLEEPER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print('up', flush=True)
time.sleep(60)
"""
STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)"


class Processed(list[str]):
    """What the supervisor said."""

    def __call__(self, message: str) -> None:
        self.append(message)


@asynccontextmanager
async def running(
    program: str, count: int = 1, *, grace: float = 5.0, burst: bool = False
) -> AsyncIterator[tuple[Supervisor, asyncio.Task[int], Processed]]:
    told = Processed()
    made = Supervisor(
        lambda index, fd: [sys.executable, "-c", program, str(index), str(fd)],
        count,
        grace=grace,
        burst=burst,
        tell=told,
    )
    task = asyncio.create_task(made.run())
    try:
        yield made, task, told
    finally:
        made.kill()
        await asyncio.wait_for(task, 45)


async def test_a_killed_child_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY", 0.01)
    async with running(SLEEPER, 2) as (made, _, told):
        await until(lambda: len(made.pids) == 2)
        first = made.pids
        os.kill(first[0], signal.SIGKILL)
        await until(lambda: len(made.pids) == 2 and first[0] not in made.pids)
        assert first[1] in made.pids
        assert f"worker process {first[0]} was killed by SIGKILL" in told[0]


async def test_a_child_that_dies_at_once_is_started_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(module, "LONGEST_DELAY", 0.04)
    async with running("import sys; sys.exit(7)") as (_, _, told):
        await until(lambda: len(told) >= 4)
    assert [message.rpartition("in ")[2] for message in told[:4]] == ["0.01 s", "0.02 s", "0.04 s", "0.04 s"]
    assert "ended with exit code 7" in told[0]


async def test_stop_lets_the_children_end_in_good_order(tmp_path: Path) -> None:
    # A child that is still starting may die of the signal itself, so this one says when it is ready.
    ready = tmp_path / "ready"
    program = SLEEPER.replace("print('up', flush=True)", f"open({str(ready)!r} + sys.argv[1], 'w').close()")
    async with running(program, 2) as (made, task, told):
        await until(lambda: len(list(tmp_path.iterdir())) == 2)
        made.stop()
        assert await asyncio.wait_for(task, 45) == DONE
        assert told == []
        assert made.pids == []


async def test_a_child_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLACK", 0.1)
    async with running(STUBBORN + "\n", grace=0.2) as (made, task, told):
        await until(lambda: len(made.pids) == 1)
        made.stop()
        code = await asyncio.wait_for(task, 45)
        # Caught before it could ignore the signal, it just ends; that is fine too.
        assert code == (FAILED if told else DONE)


async def test_a_burst_ends_when_every_child_is_done() -> None:
    async with running("", 2, burst=True) as (_, task, told):
        assert await asyncio.wait_for(task, 45) == DONE
        assert told == []


async def test_children_that_cannot_be_started_as_asked_end_everything() -> None:
    async with running("import sys; sys.exit(2)", 2) as (_, task, _):
        assert await asyncio.wait_for(task, 45) == USAGE


async def test_renewing_replaces_every_child_without_a_word(tmp_path: Path) -> None:
    program = SLEEPER.replace(
        "print('up', flush=True)", f"import os; open({str(tmp_path)!r} + '/' + str(os.getpid()), 'w').close()"
    )
    async with running(program, 2) as (made, _, told):
        await until(lambda: len(list(tmp_path.iterdir())) == 2)
        before = set(made.pids)
        made.renew()
        await until(lambda: len(made.pids) == 2 and not before & set(made.pids))
        assert told == []


def test_children_learn_of_the_death_of_their_supervisor(tmp_path: Path) -> None:
    """The pipe ends when the supervisor does, however it ended."""
    gone = tmp_path / "gone"
    child = (
        f"import os, sys; print('child', flush=True); os.read(int(sys.argv[2]), 1); open({str(gone)!r}, 'w').close()"
    )
    program = (
        "import asyncio, sys; from headrace.cli.supervisor import Supervisor; "
        f"asyncio.run(Supervisor(lambda i, fd: [sys.executable, '-c', {child!r}, str(i), str(fd)], 1, grace=5).run())"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "child\n"
        parent.kill()
        # The child holds stdout too: reading to its end waits for the child.
        parent.stdout.read()
    assert gone.exists()


async def test_each_child_is_named_and_told_whose_place_it_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY", 0.01)
    notes = "import sys, time\nopen(sys.argv[1], 'a').write(' '.join(sys.argv[2:]) + '\\n')\ntime.sleep(60)"
    note = tmp_path / "names"
    made = Supervisor(
        lambda index, fd: [sys.executable, "-c", notes, str(note)],
        1,
        grace=5.0,
        naming=lambda id, after: [str(id), str(after)],
        tell=Processed(),
    )
    task = asyncio.create_task(made.run())

    def names() -> list[list[str]]:
        return [line.split() for line in note.read_text().splitlines()] if note.exists() else []

    for count in (1, 2, 3):
        await until(lambda count=count: len(names()) == count)  # type: ignore[misc]
        os.kill(made.pids[0], signal.SIGKILL)
    made.kill()
    await asyncio.wait_for(task, 45)
    (first, none), (second, before_second), (third, before_third), *_ = names()
    assert (none, before_second, before_third) == ("None", first, second)
    assert len({first, second, third}) == 3
