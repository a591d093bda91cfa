"""Whoever connects after the file was found makes no new one where it is gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.core.defaults import Rules
from headrace.engine import Engine
from headrace.engines.sqlite import SqliteEngine
from headrace.errors import StoreLost
from headrace.runtime.host import Host
from headrace.worker.heartbeat import Heartbeat
from tests.support.apps import Sums
from tests.support.until import until

pytestmark = pytest.mark.timeout(240)


def delete(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    delete(path)
    path.parent.rmdir()


def empty(path: Path) -> None:
    """Leave the file, with nothing in it or in its log."""
    for end in ("", "-wal"):
        os.truncate(f"{path}{end}", 0)


def size(path: Path) -> int:
    """Bytes in the file; none if there is no file."""
    return path.stat().st_size if path.exists() else 0


HARMS = {delete: "was deleted or moved away", remove_folder: "was deleted or moved away", empty: "was emptied"}


async def open_a_twin(engine: Engine) -> None:
    other = engine.another_session()
    await other.open()
    await other.close()


async def open_a_twins_twin(engine: SqliteEngine) -> None:
    await open_a_twin(engine.another_session())


async def begin_a_transaction(engine: SqliteEngine) -> None:
    async with engine.transactions.transaction():
        pass


async def migrate(engine: SqliteEngine) -> None:
    await engine.migrate()


ACTS = [open_a_twin, open_a_twins_twin, begin_a_transaction, migrate]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The file of a store, in a folder of its own."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "jobs.db"


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("harm", "words"), HARMS.items(), ids=[harm.__name__ for harm in HARMS])
async def test_what_connects_to_a_lost_file_says_so_and_makes_none(
    place: Path,
    harm: Callable[[Path], None],
    words: str,
    act: Callable[[SqliteEngine], Awaitable[None]],
) -> None:
    engine = SqliteEngine(place, rules=Rules(), host=Host(), synchronous="normal")
    await engine.open()
    harm(place)
    with pytest.raises(StoreLost, match=words):
        await act(engine)
    assert size(place) == 0
    await engine.close()


async def test_a_session_that_is_opened_again_and_its_twins_make_a_new_file(place: Path) -> None:
    engine = SqliteEngine(place, rules=Rules(), host=Host(), synchronous="normal")
    await open_a_twin(engine)
    delete(place)
    await engine.open()
    delete(place)
    await engine.close()
    await engine.open()
    assert (await engine.records.ledger()).accepted == 0
    await engine.close()


@pytest.mark.parametrize(("harm", "words"), HARMS.items(), ids=[harm.__name__ for harm in HARMS])
async def test_an_app_that_is_entered_on_a_second_loop_makes_no_new_file(
    place: Path, harm: Callable[[Path], None], words: str
) -> None:
    app = Sums(f"sqlite:///{place}?synchronous=normal").app

    async def enter() -> None:
        async with app:
            pass

    async with app:
        harm(place)
        with pytest.raises(StoreLost, match=words):
            await asyncio.to_thread(asyncio.run, enter())
        assert size(place) == 0
    if place.parent.exists():  # nobody has it open any more: a new one may be made
        delete(place)
        await enter()
        assert size(place) > 0


async def test_the_heartbeat_of_a_worker_that_is_starting_makes_no_new_file(place: Path) -> None:
    sums = Sums(f"sqlite:///{place}?synchronous=normal")
    async with sums.app as app:
        beats = Heartbeat(app.worker(), app.session.engine, app.host, asyncio.get_running_loop())
        delete(place)
        beats.start()  # its session is opened a moment later
        await until(lambda: beats.lost is not None)
        await beats.stop()
        assert "was deleted or moved away" in str(beats.lost)
        assert size(place) == 0
