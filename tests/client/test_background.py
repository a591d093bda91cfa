from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from headrace.client import background as sync
from headrace.errors import ConfigError, InvalidPayload, SyncInAsync
from tests.support.apps import ENGINES, Sums, url_of


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    sync.close()


@pytest.mark.parametrize("kind", ENGINES)
def test_callers_without_a_loop_wait(kind: str, tmp_path: Path) -> None:
    sums = Sums(url_of(kind, tmp_path))
    first, second = sums.add.submit_sync(1), sums.app.wait(sums.add.submit(2))
    assert first.id != second.id
    assert sums.app.wait(sums.app.stats.counts()).ledger.accepted == 2
    assert sums.app.wait(first.refresh()).payload == {"a": 1}
    with pytest.raises(InvalidPayload):
        sums.add.submit_sync("1")  # type: ignore[arg-type]


def test_the_loop_is_one_per_process() -> None:
    one, two = Sums(), Sums()
    names: set[str] = set()

    async def look() -> None:
        names.add(f"{threading.current_thread().name} {threading.get_ident()}")

    for sums in (one, two, one):
        sums.app.wait(look())
    assert len(names) == 1
    assert names.pop().startswith("headrace-sync")


async def test_a_thread_with_a_running_loop_is_refused() -> None:
    sums = Sums()
    with pytest.raises(SyncInAsync, match="await"):
        sums.add.submit_sync(1)  # the coroutine is closed: an unawaited one would fail this test with a warning
    async with sums.app:
        with pytest.raises(SyncInAsync):
            sums.app.wait(sums.add.submit(1))
        # A thread beside the loop may: the App is open on both, with one store.
        await asyncio.to_thread(sums.add.submit_sync, 1)
        assert (await sums.app.stats.counts()).ledger.accepted == 1


def test_many_threads_share_the_loop() -> None:
    sums = Sums()
    threads = [threading.Thread(target=sums.add.submit_sync, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums.app.wait(sums.app.stats.counts()).ledger.accepted == 20


def test_an_app_that_cannot_be_opened_says_so() -> None:
    sums = Sums("mysql://")
    for _ in range(2):
        with pytest.raises(ConfigError, match="mysql"):
            sums.add.submit_sync(1)


def test_an_override_is_not_left_open_behind() -> None:
    sums = Sums()
    sums.add.submit_sync(1)
    for _ in range(2):
        with sums.app.override(url="memory://"):
            sums.add.submit_sync(1)
            assert sums.app.wait(sums.app.stats.counts()).ledger.accepted == 1
    sums.add.submit_sync(2)
    assert sums.app.wait(sums.app.stats.counts()).ledger.accepted == 2


def test_an_app_somebody_waits_on_is_not_overridden() -> None:
    sums, inside, gate = Sums(), threading.Event(), threading.Event()

    async def work() -> None:
        inside.set()
        await asyncio.to_thread(gate.wait)

    waiting = threading.Thread(target=lambda: sums.app.wait(work()))
    waiting.start()
    inside.wait(10)
    with pytest.raises(ConfigError, match="open"), sums.app.override(url="memory://"):
        pass
    gate.set()
    waiting.join()


def test_on_the_loop_itself_an_override_is_refused_not_waited_for() -> None:
    sums = Sums()

    async def work() -> None:
        with pytest.raises(ConfigError, match="open"), sums.app.override(url="memory://"):
            pass

    sums.app.wait(work())


PROGRAM = """
import os, sys
from headrace import App
app = App("sqlite:///jobs.db")

@app.task
def add(a: int) -> int:
    return a

for n in range(5):
    add.submit_sync(n)
child = os.fork()
if child == 0:
    for n in range(5):
        add.submit_sync(n)
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
for n in range(5):
    add.submit_sync(n)
print(app.wait(app.stats.counts()).ledger.accepted)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_the_loop_is_remade_after_a_fork_and_closed_at_exit(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "15\n", "")
    # Closed in good order: the last one to leave takes the log of the database along.
    assert "jobs.db-wal" not in os.listdir(tmp_path)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_interrupt_at_any_moment_of_a_wait_leaves_the_loop_to_the_others() -> None:
    sums, moments = Sums(), 0
    sums.app.wait(sums.app.stats.counts())
    background = sync._background
    assert background is not None

    async def nothing() -> None:
        await asyncio.sleep(0)

    def interrupted(at: int) -> bool:
        """Wait, with an interrupt at one moment; whether there was such a moment."""
        left = at

        def trace(frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
            nonlocal left
            if "weakref" in frame.f_code.co_filename:  # called by the collector of garbage, which raises nothing
                return None
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            return trace

        before, work = sys.gettrace(), nothing()
        sys.settrace(trace)
        try:
            sync.run_on(background.loop, work)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    while interrupted(moments + 1):
        moments += 1
        sync.run_on(background.loop, nothing(), timeout=60)
    assert moments > 10
