"""The thread that does the work: it waits for locks with patience, and leaves no mess behind errors."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import apsw
import pytest

from headrace.engines.sqlite.store import thread as module
from headrace.engines.sqlite.store.connection import connect
from headrace.engines.sqlite.store.thread import DbThread
from headrace.errors import EngineError, NotOpen, Unavailable, Unstorable
from headrace.runtime.host import Host
from tests.support.until import until

T = TypeVar("T")


@pytest.fixture
async def thread(file: Path) -> AsyncIterator[DbThread]:
    thread = DbThread("thread", file, Host(), lambda: connect(file, "full"))
    await thread.open()
    # A file without migrations would be somebody else's, and refused when it is opened again.
    await thread.run(
        lambda connection: connection.execute("CREATE TABLE migrations (x); CREATE TABLE t (x INTEGER UNIQUE)")
    )
    yield thread
    await thread.close()


def put(x: object) -> str:
    return f"INSERT INTO t VALUES ({x})"


async def test_work_is_done_in_the_order_it_was_handed_over(thread: DbThread) -> None:
    await asyncio.gather(*(thread.run(lambda connection, x=x: connection.execute(put(x)).get) for x in range(50)))  # type: ignore[misc]
    assert await thread.run(lambda connection: connection.execute("SELECT x FROM t ORDER BY rowid").fetchall()) == [
        (x,) for x in range(50)
    ]


async def test_a_lock_that_is_given_up_in_time_is_not_noticed(thread: DbThread, file: Path) -> None:
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.ensure_future(thread.run(lambda connection: connection.execute(put(1)).get))
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done
    other.execute("COMMIT")
    await waiting
    other.close()


async def test_a_lock_that_is_kept_is_told_as_refused(
    thread: DbThread, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_TIMEOUT_SECONDS", 0.2)
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked by another process") as caught:
        await thread.run(lambda connection: connection.execute(put(1)).get)
    assert caught.value.outcome == "refused"
    other.execute("COMMIT")
    other.close()
    await thread.run(lambda connection: connection.execute(put(2)).get)
    assert await thread.run(lambda connection: connection.execute("SELECT x FROM t").fetchall()) == [(2,)]


async def test_an_error_undoes_what_was_begun(thread: DbThread) -> None:
    def halfway(connection: apsw.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(put(1))
        connection.execute(put(1))

    with pytest.raises(EngineError, match="Constraint"):
        await thread.run(halfway)
    assert await thread.run(lambda connection: connection.execute("SELECT count(*) FROM t").get) == 0


async def test_text_that_is_not_unicode_is_unstorable(thread: DbThread) -> None:
    with pytest.raises(Unstorable):
        await thread.run(lambda connection: connection.execute("SELECT ?", ("\ud800",)).get)


async def test_an_asker_who_left_is_not_answered(thread: DbThread) -> None:
    asking = asyncio.ensure_future(thread.run(lambda connection: connection.execute(put(1)).get))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    async def there() -> bool:
        return bool(await thread.run(lambda connection: connection.execute("SELECT count(*) FROM t").get))

    await until(there)


async def test_closing_does_what_is_queued_and_can_be_repeated(thread: DbThread) -> None:
    asked = [asyncio.ensure_future(thread.run(lambda connection: connection.execute("SELECT 1").get)) for _ in range(9)]
    await asyncio.sleep(0)
    await thread.close()
    assert await asyncio.gather(*asked) == [1] * 9
    await thread.close()
    with pytest.raises(NotOpen):
        await thread.run(lambda connection: None)
    await thread.open()
    assert await thread.run(lambda connection: connection.execute("SELECT 1").get) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, StopIteration, asyncio.CancelledError])
async def test_nothing_ends_the_thread_while_others_wait_for_it(thread: DbThread, error: type[BaseException]) -> None:
    def interrupted(connection: apsw.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        raise error

    with pytest.raises(EngineError, match=error.__name__):
        await asyncio.wait_for(thread.run(interrupted), 45)
    assert await asyncio.wait_for(thread.run(lambda connection: connection.in_transaction), 45) is False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
async def test_a_forked_process_is_told_instead_of_waiting_for_a_thread_it_does_not_have(file: Path) -> None:
    script = f"""
import asyncio, os, sys, warnings
from pathlib import Path
from headrace.engines.sqlite.store.connection import connect
from headrace.engines.sqlite.store.thread import DbThread
from headrace.errors import NotOpen
from headrace.runtime.host import Host

warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads
path = Path({str(file)!r})

thread = DbThread("thread", path, Host(), lambda: connect(path, "full"))
loop = asyncio.new_event_loop()
loop.run_until_complete(thread.open())

async def use():
    try:
        return await asyncio.wait_for(thread.run(lambda connection: 1), 45)
    finally:
        await asyncio.wait_for(thread.close(), 45)

child = os.fork()
if child == 0:
    try:
        thread.run_at_once(lambda connection: 1)
        os._exit(1)
    except NotOpen:
        pass
    try:
        asyncio.run(use())
    except NotOpen:
        os._exit(7)
    finally:
        os._exit(1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert loop.run_until_complete(use()) == 1
loop.close()
sys.exit(code)
"""
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script], timeout=60, check=False)
    assert done.returncode == 7


# -- on the thread of the caller


def asked(thread: DbThread, call: Callable[[apsw.Connection], T]) -> Awaitable[T | None]:
    """Ask on a thread that has no loop."""
    return asyncio.to_thread(thread.run_at_once, call)


async def at_once(thread: DbThread, call: Callable[[apsw.Connection], T]) -> T:
    """Ask until the connection is lent: a call that was answered may not be quite over."""
    found = list[T]()

    async def is_lent() -> bool:
        answer = await asked(thread, call)
        found.extend([] if answer is None else [answer])
        return answer is not None

    await until(is_lent)
    return found[0]


def store(x: int) -> Callable[[apsw.Connection], int]:
    def write(connection: apsw.Connection) -> int:
        connection.execute(put(x))
        return threading.get_ident()

    return write


async def everything(file: Path) -> list[int]:
    """What is committed, as another connection sees it."""
    other = apsw.Connection(str(file))
    try:
        return [x for (x,) in other.execute("SELECT x FROM t ORDER BY x")]
    finally:
        other.close()


async def test_a_call_may_be_run_on_the_thread_that_asks(thread: DbThread, file: Path) -> None:
    def ask() -> bool:
        while (where := thread.run_at_once(store(1))) is None:
            pass
        return where == threading.get_ident()

    assert await asyncio.to_thread(ask)
    assert await everything(file) == [1]


async def test_calls_that_wait_or_run_go_first(thread: DbThread, file: Path) -> None:
    gate, inside = threading.Event(), threading.Event()

    def slowly(connection: apsw.Connection) -> None:
        inside.set()
        gate.wait()

    running = asyncio.ensure_future(thread.run(slowly))
    await asyncio.to_thread(inside.wait)
    assert await asked(thread, store(1)) is None
    waiting = asyncio.ensure_future(thread.run(store(2)))
    await asyncio.sleep(0)
    assert await asked(thread, store(3)) is None
    gate.set()
    await asyncio.gather(running, waiting)
    assert await everything(file) == [2]
    await at_once(thread, store(4))
    assert await everything(file) == [2, 4]


async def test_calls_wait_for_the_one_on_another_thread(thread: DbThread, file: Path) -> None:
    gate, inside = threading.Event(), threading.Event()

    def slowly(connection: apsw.Connection) -> bool:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(put(1))
        inside.set()
        gate.wait()
        connection.execute("COMMIT")
        return True

    running = asyncio.ensure_future(at_once(thread, slowly))
    await asyncio.to_thread(inside.wait)
    assert await asked(thread, store(2)) is None
    waiting = asyncio.ensure_future(thread.run(store(3)))
    await asyncio.sleep(0)
    gate.set()
    assert await running
    await waiting
    assert await everything(file) == [1, 3]


async def test_errors_at_once_mean_the_same_and_leave_nothing_behind(
    thread: DbThread, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halfway(connection: apsw.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(put(1))
        connection.execute(put(1))

    with pytest.raises(EngineError, match="Constraint"):
        await at_once(thread, halfway)
    monkeypatch.setattr(module, "BRIEF_LOCK_TIMEOUT_SECONDS", 0.2)
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked by another process") as caught:
        await at_once(thread, store(1))
    assert caught.value.outcome == "refused"
    other.close()
    assert await at_once(thread, store(2))
    assert await everything(file) == [2]


async def test_an_interrupt_reaches_the_caller_and_leaves_nothing_behind(
    thread: DbThread, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(connection: apsw.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(put(1))
        raise KeyboardInterrupt

    def ask() -> bool:
        try:
            while thread.run_at_once(interrupted) is None:
                pass
        except KeyboardInterrupt:
            return True
        return False

    def undo(connection: apsw.Connection) -> None:
        raise KeyboardInterrupt

    assert await asyncio.to_thread(ask)
    assert await at_once(thread, store(2))
    with monkeypatch.context() as patch:  # a second one, at the worst moment: the transaction stays open
        patch.setattr(module, "_undo", undo)
        assert await asyncio.to_thread(ask)
    await thread.run(store(3))
    assert await everything(file) == [2, 3]
    with monkeypatch.context() as patch:
        patch.setattr(module, "_undo", undo)
        assert await asyncio.to_thread(ask)
    assert await at_once(thread, store(4))
    assert await everything(file) == [2, 3, 4]


async def test_a_thread_that_is_closed_lends_nothing(thread: DbThread) -> None:
    await thread.close()
    with pytest.raises(NotOpen):
        await asked(thread, store(1))


async def test_what_an_interrupt_makes_python_believe_of_the_thread_does_not_matter(
    thread: DbThread, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An interrupt within ``is_alive`` makes Python 3.11 take a thread for ended that runs.
    monkeypatch.setattr(thread._thread, "is_alive", lambda: False)
    assert await at_once(thread, store(1))
    await thread.run(lambda connection: connection.execute(put(2)))
    await thread.close()
    assert await everything(file) == [1, 2]


async def test_a_thread_that_is_closed_as_it_is_asked_says_so_or_answers(
    thread: DbThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [thread._thread]  # at the second look it is gone
    with monkeypatch.context() as patch:
        patch.setattr(DbThread, "_thread", property(lambda _: looks.pop() if looks else None), raising=False)
        assert await asked(thread, lambda _: "here") in ("here", None)


async def test_a_thread_whose_connection_is_only_lent_tidies_up(file: Path) -> None:
    tidied: list[int] = []

    def tidy(connection: apsw.Connection) -> float:
        tidied.append(threading.get_ident())
        return 0.0

    thread = DbThread("thread", file, Host(), lambda: connect(file, "full"), tidy)
    await thread.open()
    try:

        async def lend_and_look() -> bool:
            await asked(thread, lambda connection: True)
            return len(tidied) > 1

        await until(lend_and_look)
        assert threading.get_ident() not in tidied
    finally:
        await thread.close()
