"""The store of running worker processes is deleted or replaced: they say so, stop, and can be started again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli.exit_codes import UNREACHABLE
from tests.crash.app import app, work
from tests.support.crew import crew
from tests.support.until import until

pytestmark = pytest.mark.timeout(240)

NEW = """
import asyncio, sys
from tests.crash.app import app

async def main():
    with app.override(url=f"sqlite:///{sys.argv[1]}"):
        async with app:
            pass

asyncio.run(main())
"""


def delete(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink()


def delete_alone(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    subprocess.run([sys.executable, "-c", NEW, str(other)], check=True, timeout=60)
    other.rename(path)


async def two_at_work() -> bool:
    return len(await app.workers.list()) == 2


@pytest.mark.parametrize("harm", [delete, delete_alone, replace])
async def test_workers_say_that_their_store_is_lost_and_end(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    path = tmp_path / "jobs.db"
    url = f"sqlite:///{path}"
    with app.override(url=url), crew(url, tmp_path) as workers:
        members = workers.hire(), workers.hire()
        async with app:
            await until(two_at_work, within=90)
            for job in await work.map([(0.1,) for _ in range(40)]):
                await job.result(timeout=90)
        await asyncio.to_thread(harm, path)
        for worker in members:
            code = await asyncio.to_thread(worker.wait, 90)
            said = workers.said(worker)
            assert code == UNREACHABLE, said
            assert said.count("the worker claims no more and stops") == 1, said
            assert said.count(str(path)) == said.count(url) + 1, said  # the url is said at its start
            assert "Traceback" not in said
            assert "trying on" not in said
        workers.hire()
        async with app:
            assert await (await work.submit(0.0)).result(timeout=90)


async def test_a_supervised_worker_is_started_again_on_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    url = f"sqlite:///{path}"
    with app.override(url=url), crew(url, tmp_path) as workers:
        keeper = workers.hire("--processes", "2")
        async with app:
            await until(two_at_work, within=90)
        await asyncio.to_thread(delete, path)
        await until(lambda: workers.said(keeper).count(f"ended with exit code {UNREACHABLE}") >= 2, within=90)
        async with app:
            assert await (await work.submit(0.0)).result(timeout=90)
