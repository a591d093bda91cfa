"""The lock that shows that a worker lives: who holds it, who finds it free, and what says nothing about either."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from headrace.core.defaults import Rules
from headrace.core.lifecycle import duty
from headrace.engine import Attended, WorkerInfo, WorkerRow
from headrace.engine.workers import Beat
from headrace.engines.sqlite import SqliteEngine
from headrace.engines.sqlite.store import presence as module
from headrace.engines.sqlite.store.presence import Presence, directory_of
from headrace.runtime.host import Host

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def row(worker: UUID, proof: str | None) -> WorkerRow:
    info = WorkerInfo(id=worker, host="here", pid=1, started_at=NOW, concurrency=1, proof=proof)
    return WorkerRow(info, Beat(), 0, NOW, True, 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def held(presence: Presence, worker: UUID) -> Attended:
    attended = presence.attend(worker)
    assert attended is not None
    return attended


def test_it_is_held_until_it_is_let_go(file: Path) -> None:
    presence, other, worker = Presence(file), Presence(file), uuid4()
    attended = held(presence, worker)
    assert held(presence, worker) == attended
    here = row(worker, attended.proof)
    for one in (presence, other):  # also of the same process
        assert one.gone([here]) == frozenset()
    presence.let_go()
    for _ in range(2):
        assert other.gone([here]) == {worker}


HOLDER = """
import sys, time
from pathlib import Path
from uuid import UUID
from headrace.engines.sqlite.store.presence import Presence
presence = Presence(Path(sys.argv[1]))
print(presence.attend(UUID(sys.argv[2])).proof, flush=True)
time.sleep(60)
"""


def test_a_killed_process_lets_go(file: Path) -> None:
    worker = uuid4()
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(file), str(worker)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        here = row(worker, process.stdout.readline().decode().strip())
        assert Presence(file).gone([here]) == frozenset()
        process.send_signal(signal.SIGSTOP)
        assert Presence(file).gone([here]) == frozenset()
        process.kill()
        process.wait()
        assert Presence(file).gone([here]) == {worker}


def test_a_forked_child_holds_it_too_and_lets_go_of_nothing_when_it_ends(file: Path) -> None:
    presence, other, worker = Presence(file), Presence(file), uuid4()
    here = row(worker, held(presence, worker).proof)
    reading, writing = os.pipe()
    for lets_go in (False, True):  # whatever it does with what it has of its parent
        child = os.fork()
        if not child:
            if lets_go:
                presence.let_go()
            os._exit(0)
        os.waitpid(child, 0)
        assert other.gone([here]) == frozenset()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    presence.let_go()
    assert other.gone([here]) == frozenset()  # the child has it: safe, and judged by looks
    os.close(writing)
    os.close(reading)
    os.waitpid(child, 0)
    assert other.gone([here]) == {worker}


def test_what_was_held_under_another_kernel_or_file_says_nothing(file: Path) -> None:
    presence, worker = Presence(file), uuid4()
    boot, device, inode = held(presence, worker).proof.split()
    presence.let_go()
    proofs = (
        f"{uuid4()} {device} {inode}",
        f"{boot} {int(device) + 1} {inode}",
        f"{boot} {device} {int(inode) + 1}",
        "",
        None,
    )
    assert presence.gone([row(worker, proof) for proof in proofs]) == frozenset()
    assert presence.gone([row(uuid4(), f"{boot} {device} {inode}")]) == frozenset()
    assert presence.gone([row(worker, f"{boot} {device} {inode}")]) == {worker}


def test_a_file_that_was_removed_is_made_again_under_a_new_proof(file: Path) -> None:
    presence, worker = Presence(file), uuid4()
    first = held(presence, worker).proof
    keep = directory_of(file).with_name("kept")  # so that its inode is not given away again
    os.link(directory_of(file) / str(worker), keep)
    (directory_of(file) / str(worker)).unlink()
    directory_of(file).rmdir()
    assert presence.gone([row(worker, first)]) == frozenset()
    second = held(presence, worker).proof
    assert second != first
    assert presence.gone([row(worker, first)]) == frozenset()
    assert presence.gone([row(worker, second)]) == frozenset()


def test_a_descriptor_that_others_closed_is_replaced_and_what_has_its_number_is_left_alone(file: Path) -> None:
    presence, worker = Presence(file), uuid4()
    attended = held(presence, worker)
    assert attended.descriptor is not None
    os.close(attended.descriptor)  # as a program does that closes all it does not know
    assert presence.gone([row(worker, attended.proof)]) == {worker}
    foreign = os.open(os.devnull, os.O_RDONLY)
    assert foreign == attended.descriptor
    again = held(presence, worker)
    assert again.proof == attended.proof
    assert presence.gone([row(worker, again.proof)]) == frozenset()
    os.close(foreign)


def test_whoever_goes_on_under_a_new_id_holds_that_one_alone(file: Path) -> None:
    presence, one, two = Presence(file), uuid4(), uuid4()
    held(presence, one)
    proof = held(presence, two).proof
    assert [path.name for path in directory_of(file).iterdir()] == [str(two)]
    assert presence.gone([row(two, proof)]) == frozenset()


def test_what_the_killed_left_behind_is_removed_and_what_is_held_stays(file: Path) -> None:
    presence, unknown, known, left = Presence(file), uuid4(), uuid4(), uuid4()
    held(presence, unknown)  # not registered yet
    for worker in (known, left):
        gone = Presence(file)
        held(gone, worker)
        gone.let_go()
    (directory_of(file) / "not a worker").touch()
    presence.tidy(frozenset({known}))
    assert {path.name for path in directory_of(file).iterdir()} == {str(unknown), str(known), "not a worker"}


def test_a_file_that_is_removed_before_it_is_locked_is_not_taken_for_held(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    presence, other, worker = Presence(file), Presence(file), uuid4()
    lock, calls = fcntl.flock, list[int]()

    def removed_first(descriptor: int, operation: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            other.tidy(frozenset())
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    proof = held(presence, worker).proof
    assert len(calls) == 3  # the first try, the other's, the second try
    assert other.gone([row(worker, proof)]) == frozenset()
    assert (directory_of(file) / str(worker)).exists()


def test_a_system_that_cannot_tell_says_so(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = uuid4()
    directory_of(file).touch()  # no directory can be made there
    assert Presence(file).attend(worker) is None
    directory_of(file).unlink()
    monkeypatch.setattr(module, "_boot", lambda: None)
    assert Presence(file).attend(worker) is None
    assert Presence(file).gone([row(worker, "x 1 2")]) == frozenset()


async def test_burial_and_leave_remove_the_file_and_the_last_one_the_directory(file: Path) -> None:
    engine, sessions, workers = SqliteEngine(file, rules=Rules(), host=Host()), list[SqliteEngine](), [uuid4(), uuid4()]
    await engine.open()
    for worker in workers:
        session = engine.another_session()
        assert isinstance(session, SqliteEngine)
        await session.open()
        sessions.append(session)
        attended = await session.workers.attend(worker)
        assert attended is not None
        info = WorkerInfo(id=worker, host="here", pid=1, started_at=NOW, concurrency=1, proof=attended.proof)
        await engine.workers.register(info, NOW)
    assert await engine.workers.bury(workers[0], 0)
    assert [path.name for path in await asyncio.to_thread(lambda: list(directory_of(file).iterdir()))] == [
        str(workers[1])
    ]
    await engine.workers.retire(workers[1])
    assert not await asyncio.to_thread(directory_of(file).exists)
    for session in (*sessions, engine):
        await session.close()


async def test_what_a_program_left_that_was_killed_stays_until_it_is_found(file: Path) -> None:
    engine, program, left = SqliteEngine(file, rules=Rules(), host=Host()), uuid4(), uuid4()
    await engine.open()
    try:
        for one in (program, left):
            gone = Presence(file)
            held(gone, one)
            gone.let_go()
        for key in (f"{duty.HOLDER}{program}", f"{duty.HOLDER}nonsense"):
            assert await engine.documents.put_setting(key, "{}", 0)
        # A worker that comes just then tidies up, and must leave the proof of the death to those who look.
        await engine.workers.register(row(uuid4(), None).info, NOW)
        assert os.listdir(directory_of(file)) == [str(program)]
    finally:
        await engine.close()
