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

from headrace.cli.exit_codes import DONE, FAILED, USAGE
from headrace.cli.process import supervisor as module
from headrace.cli.process.supervisor import Supervisor
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
    program: str, count: int = 1, *, grace: float = 5.0, burst: bool = False, renewed: Path | None = None
) -> AsyncIterator[tuple[Supervisor, asyncio.Task[int], Processed]]:
    told = Processed()
    made = Supervisor(
        lambda index, fd: [sys.executable, "-c", program, str(index), str(fd)],
        count,
        grace=grace,
        burst=burst,
        renewing=None if renewed is None else lambda fd: [str(fd), str(renewed)],
        tell=told,
    )
    task = asyncio.create_task(made.run())
    try:
        yield made, task, told
    finally:
        made.kill()
        await asyncio.wait_for(task, 45)


async def test_a_killed_child_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY_SECONDS", 0.01)
    async with running(SLEEPER, 2) as (made, _, told):
        await until(lambda: len(made.pids) == 2)
        first = made.pids
        os.kill(first[0], signal.SIGKILL)
        await until(lambda: len(made.pids) == 2 and first[0] not in made.pids)
        assert first[1] in made.pids
        assert f"worker process {first[0]} was killed by SIGKILL" in told[0]


async def test_a_child_that_dies_at_once_is_started_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(module, "MAX_DELAY_SECONDS", 0.04)
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
    monkeypatch.setattr(module, "KILL_SLACK_SECONDS", 0.1)
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
        "import asyncio, sys; from headrace.cli.process.supervisor import Supervisor; "
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
    monkeypatch.setattr(module, "FIRST_DELAY_SECONDS", 0.01)
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
        await until(lambda count=count: len(names()) == count and bool(made.pids))  # type: ignore[misc]
        os.kill(made.pids[0], signal.SIGKILL)
    made.kill()
    await asyncio.wait_for(task, 45)
    (first, none), (second, before_second), (third, before_third), *_ = names()
    assert (none, before_second, before_third) == ("None", first, second)
    assert len({first, second, third}) == 3


RENEWED = """
import os, signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
place, log = sys.argv[1], sys.argv[4]
line = socket.socket(fileno=int(sys.argv[3]))
def lines():
    return open(log).read().splitlines()
def note(word):
    with open(log, 'a') as file:
        file.write(f'{word} {place}\\n')
note('up')
line.sendall(b'up\\n')
if lines().count(f'up {place}') == 1:
    line.sendall(b'renew\\n')
    assert line.recv(9) == b'go\\n'
    note('goes')
    line.sendall(b'left after 7 jobs\\n')
    while lines().count(f'up {place}') == 1:
        time.sleep(0.01)
    note('ended')
    sys.exit(0)
time.sleep(60)
"""


async def test_children_are_renewed_one_at_a_time_and_the_next_is_there_before_they_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()

    def lines() -> list[str]:
        return log.read_text().splitlines()

    async with running(RENEWED, 2, renewed=log) as (made, task, told):
        await until(lambda: sorted(line for line in lines() if line.startswith("ended")) == ["ended 0", "ended 1"])
        await until(lambda: len(made.pids) == 2)
        made.stop()
        assert await asyncio.wait_for(task, 45) == DONE
    order = [line for line in lines() if not line.startswith("ended")]
    first, second = [line.split()[1] for line in order if line.startswith("goes")]
    begin = order.index(f"goes {first}")
    assert f"up {first}" in order[begin : order.index(f"goes {second}")], (
        "the second goes when the next of the first is up"
    )
    assert sorted(order) == ["goes 0", "goes 1", "up 0", "up 0", "up 1", "up 1"]
    assert sum("is renewed after 7 jobs" in line for line in told) == 2
    assert not any("exit code" in line for line in told), "it was no accident"


async def test_one_that_is_being_renewed_is_stopped_with_the_others(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    lingers = RENEWED.replace("while lines().count(f'up {place}') == 1:", "while True:")
    async with running(lingers, 1, renewed=log) as (made, task, told):
        await until(lambda: log.read_text().split().count("up") == 2)
        made.stop()
        assert await asyncio.wait_for(task, 45) == DONE
    assert len(told) == 1


async def test_one_that_is_being_renewed_and_does_not_stop_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RELEASE_SECONDS", 0.1)
    log = tmp_path / "log"
    log.touch()
    deaf = "for one in (signal.SIGTERM, signal.SIGINT): signal.signal(one, signal.SIG_IGN)\n    note('goes')"
    lingers = RENEWED.replace("note('goes')", deaf).replace("while lines().count(f'up {place}') == 1:", "while True:")
    async with running(lingers, 1, grace=600, renewed=log) as (made, task, told):
        await until(lambda: log.read_text().split().count("up") == 2)
        made.stop()
        await until(lambda: made.pids == [])
        made.hurry()
        assert await asyncio.wait_for(task, 45) == FAILED
    assert told[1:] == ["1 worker process did not stop in time: killed"]


async def test_one_that_dies_while_it_is_renewed_gives_its_turn_back(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    dies = RENEWED.replace("    note('goes')\n", "    note('goes')\n    os._exit(3)\n")
    async with running(dies, 2, renewed=log) as (_, _, told):
        await until(lambda: log.read_text().split().count("up") == 4)
        assert sum("ended with exit code 3" in line for line in told) == 2


async def test_one_that_hangs_up_without_a_look_at_its_turn_takes_nobody_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY_SECONDS", 0.01)
    log, end = tmp_path / "log", tmp_path / "end"
    log.touch()
    # As one that is killed, or stops, between the answer and its look at it.
    hangs_up = RENEWED.replace("assert line.recv(9) == b'go\\n'", "line.recv(9, socket.MSG_PEEK)").replace(
        "    note('goes')\n",
        f"    note('goes')\n    line.close()\n    while not os.path.exists({str(end)!r}):\n        time.sleep(0.01)\n"
        "    os._exit(3)\n",
    )
    async with running(hangs_up, 2, renewed=log) as (_, task, told):
        await until(lambda: "goes" in log.read_text())
        end.touch()
        await until(lambda: task.done() or log.read_text().split().count("up") == 4)
        assert not task.done(), "the supervisor goes on"
        assert sum("ended with exit code 3" in line for line in told) == 2
