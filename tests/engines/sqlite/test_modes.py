"""Who may use the files of a store: its user alone, or its group if that is asked for, whatever the umask is."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from headrace import App
from headrace.engine import Check
from headrace.engines.sqlite.bus import directory_of as sockets_of
from headrace.engines.sqlite.store.presence import directory_of as workers_of
from headrace.errors import ConfigError


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=lambda mask: f"umask{mask:03o}")
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(file: Path) -> str:
    return f"{stat.S_IMODE(file.stat().st_mode):04o}"


def beside(path: Path) -> dict[str, str]:
    """The modes of all files of a store."""
    found = {one.name: mode_of(one) for one in sorted(path.parent.iterdir()) if one.name.startswith(path.name)}
    return found | {f"worker {one.name}": mode_of(one) for one in workers_of(path).iterdir()}


async def access(app: App) -> Check:
    return next(one for one in await app.store.doctor() if one.name == "access")


@pytest.mark.parametrize(("asked", "file", "folder"), [("", "0600", "0700"), ("?mode=0660", "0660", "0770")])
async def test_new_files_are_as_asked_for(umask: int, asked: str, file: str, folder: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    app = App(f"sqlite:///{path}{asked}")

    @app.task
    async def add(a: int) -> int:
        return a + 1

    async with app, app.worker():
        assert await (await add.submit(1)).result() == 2
        found = beside(path)
        assert {name: mode for name, mode in found.items() if not name.startswith("worker ")} == {
            "jobs.db": file,
            "jobs.db-wal": file,
            "jobs.db-shm": file,
            "jobs.db-workers": folder,
        }
        locks = [mode for name, mode in found.items() if name.startswith("worker ")]
        assert locks
        assert set(locks) == {file}
        sockets = sockets_of(path)
        assert mode_of(sockets) == "0700"
        names = list(sockets.iterdir())
        assert names
        assert {mode_of(one) for one in names} == {"0600"}
        assert (await access(app)).level == "ok"


def test_a_submit_on_the_callers_thread_makes_the_same_files(umask: int, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    app = App(f"sqlite:///{path}")

    @app.task
    def add(a: int) -> int:
        return a + 1

    for number in range(3):
        add.submit_sync(number)
    assert {mode_of(one) for one in tmp_path.iterdir() if one.is_file()} == {"0600"}


def test_a_link_that_leads_to_nothing_yet_leads_to_a_file_of_its_users_own(umask: int, tmp_path: Path) -> None:
    place, link = tmp_path / "real.db", tmp_path / "jobs.db"
    link.symlink_to(place)
    asyncio.run(App(f"sqlite:///{link}").store.migrate())
    assert mode_of(place) == "0600"


async def test_what_is_there_is_left_as_it_is_and_the_doctor_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "my jobs.db"
    path.touch()
    path.chmod(0o644)
    app = App(f"sqlite:///{path}")

    @app.task
    async def add(a: int) -> int:
        return a + 1

    async with app, app.worker():
        await (await add.submit(1)).result()
        assert set(beside(path).values()) == {"0644", "0755"}, "as SQLite does beside a file"
        found = await access(app)
        assert (found.level, "my jobs.db is 0644" in found.message) == ("warn", True)
        assert found.remedy is not None
        await asyncio.to_thread(subprocess.run, found.remedy.partition(" (")[0], shell=True, check=True)
        assert set(beside(path).values()) - {"0644"} == {"0600", "0700"}, "but for the lock of a worker that lives"
        assert (await access(app)).level == "ok"


async def test_a_group_that_was_asked_for_and_may_not_is_told(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    await App(f"sqlite:///{path}").store.migrate()
    async with App(f"sqlite:///{path}?mode=0660") as app:
        found = await access(app)
        assert (found.level, found.message) == (
            "warn",
            "the URL says mode 0660, and jobs.db is 0600, jobs.db-wal is 0600, jobs.db-shm is 0600",
        )
        assert mode_of(path) == "0600"


@pytest.mark.parametrize("mode", ["0644", "0666", "0777", "660", "0400", "0o660", "", "rw"])
def test_a_mode_that_cannot_be_used_is_refused(mode: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mode must be 0600, 0640, 0660 or left out"):
        asyncio.run(App(f"sqlite:///{tmp_path}/jobs.db?mode={mode}").store.migrate())
    assert not list(tmp_path.iterdir())


def test_a_backup_is_its_users_own_and_can_be_put_back(umask: int, tmp_path: Path) -> None:
    """As the guide has it."""
    path, copy = tmp_path / "jobs.db", tmp_path / "copy.db"
    app = App(f"sqlite:///{path}")

    @app.task
    def add(a: int) -> int:
        return a + 1

    handle = add.submit_sync(1)
    script = f"umask 077 && {sys.executable} -m apsw {path} '.backup {copy}'"
    subprocess.run(script, shell=True, check=True, stdout=subprocess.DEVNULL)
    assert mode_of(copy) == "0600"

    async def read() -> str:
        async with App(f"sqlite:///{copy}") as restored:
            return (await restored.jobs.get(handle.id)).task

    assert asyncio.run(read()) == add.name


def test_a_reader_of_the_same_user_needs_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    asyncio.run(App(f"sqlite:///{path}").store.migrate())
    connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    try:
        assert connection.execute("SELECT count(*) FROM jobs").get == 0
    finally:
        connection.close()
