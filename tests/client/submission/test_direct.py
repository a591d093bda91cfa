"""submit_sync on the caller's own thread: durable, in order, and whatever goes wrong is told as ever."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import pytest

from headrace import Draft, JobHandle
from headrace.client import background
from headrace.client.submission.middleware import SubmitNext
from headrace.engines.sqlite.jobs.insert import Insertion, LoneInsertion
from headrace.errors import StoreLost, SyncInAsync, Unavailable
from tests.support.apps import Sums


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    background.close()


@pytest.fixture
def sums(tmp_path: Path) -> Sums:
    return Sums(f"sqlite:///{tmp_path}/jobs.db")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads on which jobs were written, one after the other."""
    threads: list[int] = []

    def noted(write: Callable[[Any, apsw.Connection], Any]) -> Callable[[Any, apsw.Connection], Any]:
        def noting(insertion: Any, connection: apsw.Connection) -> Any:
            threads.append(threading.get_ident())
            return write(insertion, connection)

        return noting

    monkeypatch.setattr(Insertion, "write", noted(Insertion.write))
    monkeypatch.setattr(LoneInsertion, "write_new", noted(LoneInsertion.write_new))
    return threads


def submit_here(sums: Sums, written: list[int]) -> JobHandle[int]:
    """Submit until a job was written on this very thread: the store's own may be at work just then."""
    while True:
        handle = sums.add.submit_sync(1)
        if written[-1] == threading.get_ident():
            return handle


def count(sums: Sums) -> int:
    return sums.app.wait(sums.app.stats.counts()).ledger.accepted


def test_a_lone_job_is_committed_on_the_thread_of_its_submitter(sums: Sums, written: list[int]) -> None:
    sums.add.submit_sync(1)
    assert written[-1] != threading.get_ident(), "the first one opens the App, on its loop"
    handle = submit_here(sums, written)
    assert handle.last is not None
    assert handle.last.seq == count(sums)
    assert sums.app.wait(handle.refresh()) == handle.last


async def test_no_job_is_committed_on_a_loop(sums: Sums, written: list[int]) -> None:
    async with sums.app:
        for n in range(5):
            await sums.add.submit(n)
        await asyncio.to_thread(sums.add.submit_sync, 5)
        with pytest.raises(SyncInAsync):
            sums.add.submit_sync(6)
        assert (await sums.app.stats.counts()).ledger.accepted == 6
    assert threading.get_ident() not in written


def test_what_is_submitted_later_stands_later_whichever_way_it_went(sums: Sums, written: list[int]) -> None:
    handles = []
    for _ in range(5):
        handles += [submit_here(sums, written), sums.app.wait(sums.add.submit(1)), sums.add.submit_sync(1)]
    seqs = [handle.last.seq for handle in handles if handle.last is not None]
    assert len(seqs) == 15
    assert seqs == sorted(seqs)


def test_options_reach_the_job(sums: Sums, written: list[int]) -> None:
    submit_here(sums, written)
    before = count(sums)
    later = sums.add.options(delay=60, priority=3, tags=["t"]).submit_sync(1).last
    assert later is not None
    assert (later.priority, later.spec.tags) == (3, ("t",))
    assert later.available_at > later.created_at
    first = sums.add.options(dedup="k").submit_sync(1)
    second = sums.add.options(dedup="k").submit_sync(1)
    assert (second.id, second.duplicate) == (first.id, True)
    draft = sums.add.draft(1)
    assert [draft.submit_sync().id for _ in range(3)] == [draft.id] * 3
    assert count(sums) == before + 3


def test_middleware_is_called_whichever_way_there_would_be(sums: Sums, written: list[int]) -> None:
    submit_here(sums, written)
    seen: list[UUID] = []

    @sums.app.submit_middleware
    async def look(drafts: Sequence[Draft[Any]], call_next: SubmitNext) -> list[JobHandle[Any]]:
        seen.extend(draft.id for draft in drafts)
        return await call_next(drafts)

    assert [sums.add.submit_sync(n).id for n in range(3)] == seen


def test_a_file_that_another_has_locked_is_waited_for(sums: Sums, written: list[int], tmp_path: Path) -> None:
    submit_here(sums, written)
    other = apsw.Connection(str(tmp_path / "jobs.db"))
    other.execute("BEGIN IMMEDIATE")
    done = threading.Event()

    def submit() -> None:
        sums.add.submit_sync(2)
        done.set()

    waiting = threading.Thread(target=submit)
    before = len(written)
    waiting.start()
    while len(written) == before:
        done.wait(0.01)
    assert not done.is_set()
    other.execute("COMMIT")
    other.close()
    waiting.join()
    assert done.is_set()


def test_a_file_that_is_gone_is_told_as_ever(sums: Sums, written: list[int], tmp_path: Path) -> None:
    submit_here(sums, written)
    for name in ("jobs.db", "jobs.db-wal", "jobs.db-shm"):
        os.rename(tmp_path / name, tmp_path / f"moved-{name}")
    draft = sums.add.draft(2)
    with pytest.raises(StoreLost, match=r"the submits were not acknowledged: .* was deleted or moved") as caught:
        draft.submit_sync()
    assert (caught.value.ids, caught.value.outcome) == ((draft.id,), "unknown")
    for name in ("jobs.db", "jobs.db-wal", "jobs.db-shm"):
        os.rename(tmp_path / f"moved-{name}", tmp_path / name)
    background.close()
    submit_here(sums, written)


@pytest.mark.parametrize("outcome", ["refused", "unknown"])
def test_a_write_that_may_have_happened_stays_so_if_the_next_is_refused(
    sums: Sums, written: list[int], monkeypatch: pytest.MonkeyPatch, outcome: Any
) -> None:
    submit_here(sums, written)
    failed: list[bool] = []

    def fail(insertion: LoneInsertion, connection: apsw.Connection) -> None:
        failed.append(True)
        raise Unavailable("the disk is gone", outcome=outcome)

    def refuse(work: Any) -> None:
        work.close()
        raise Unavailable("the disk is full")

    monkeypatch.setattr(LoneInsertion, "write_new", fail)
    monkeypatch.setattr(sums.app, "wait", refuse)
    while True:  # until it was tried on this thread first
        with pytest.raises(Unavailable, match="full") as caught:
            sums.add.submit_sync(1)
        if failed:
            break
    assert caught.value.outcome == outcome


def test_a_handler_of_signals_within_a_submit_is_refused_and_waits_for_nothing(
    sums: Sums, written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_here(sums, written)
    write, here, refused = LoneInsertion.write_new, threading.get_ident(), list[bool]()

    def interrupted(insertion: LoneInsertion, connection: apsw.Connection) -> int:
        if threading.get_ident() == here:
            with pytest.raises(SyncInAsync, match="handler of signals"):
                sums.add.submit_sync(2)
            with pytest.raises(SyncInAsync, match="handler of signals"):
                sums.app.wait(sums.add.submit(2))
            refused.append(True)
        return write(insertion, connection)

    with monkeypatch.context() as patch:
        patch.setattr(LoneInsertion, "write_new", interrupted)
        while not refused:
            handle = sums.add.submit_sync(1)
    assert handle.last is not None
    assert handle.last.seq == count(sums)
    submit_here(sums, written)


def test_many_threads_store_each_job_once_while_the_app_is_closed_under_them(sums: Sums) -> None:
    handles: list[JobHandle[int]] = []

    def submit(number: int) -> None:
        for n in range(15):
            handles.append(sums.add.submit_sync(number * 100 + n))
            if n % 5 == number % 5:
                background.leave(sums.app)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({handle.id for handle in handles}) == count(sums) == 120


SUBMITTER = """
import os, sys, threading
from headrace import App
app = App("sqlite:///jobs.db")

@app.task
def add(a: int) -> int:
    return a

def submit() -> None:
    for n in range(20):
        os.write(1, f"{add.submit_sync(n).id}\\n".encode())  # in one piece, which print is not

threads = [threading.Thread(target=submit) for _ in range(int(sys.argv[1]))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.stdin.readline()
"""


def _submitter(tmp_path: Path, threads: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SUBMITTER, str(threads)]
    return subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_what_was_acknowledged_is_there_after_a_kill(sums: Sums, tmp_path: Path) -> None:
    with _submitter(tmp_path, 1) as process:
        assert process.stdout is not None
        told = [UUID(process.stdout.readline().strip()) for _ in range(13)]
        process.send_signal(signal.SIGKILL)
    assert None not in sums.app.wait(sums.app.jobs.get_many(told))


def test_processes_with_threads_share_the_file(sums: Sums, tmp_path: Path) -> None:
    processes = [_submitter(tmp_path, threads) for threads in (1, 3)]
    mine = [sums.add.submit_sync(n).id for n in range(20)]
    told = [UUID(line) for process in processes for line in process.communicate("\n")[0].splitlines()]
    assert [process.returncode for process in processes] == [0, 0]
    assert len({*mine, *told}) == 100 == count(sums)
