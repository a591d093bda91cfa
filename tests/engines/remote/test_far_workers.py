"""Workers far away, as processes: they do everything there is but transactions, and a hub may die under them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Every
from headrace.errors import NotSupported
from tests.cli.patience import until_sync
from tests.engines.remote import far_app
from tests.hub.process import started
from tests.support.forks import HEADRACE, Command
from tests.support.until import until

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(300),
]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def worker(folder: Path, url: str, key: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A worker in a folder that has the code and not the store."""
    folder.mkdir(exist_ok=True)
    (folder / "shop.py").write_text(Path(far_app.__file__).read_text())
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    with open(folder / "log.txt", "w") as log:
        process = Command(
            [*HEADRACE, "worker", "shop:app", "--url", url, *flags],
            cwd=folder,
            env=clean | {"HEADRACE_KEY": key},
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert key[11:] not in (folder / "log.txt").read_text()


async def make_key(url: str) -> str:
    async with App(url) as app:
        return (await app.keys.create("far", ["engine"])).text


async def test_a_worker_far_away_does_everything_but_transactions(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    key = await make_key(store)
    with started(tmp_path, "hub", "--no-webhooks", "--url", store) as hub:
        url = f"hub+{hub.address}"
        with worker(tmp_path / "far", url, key, "--processes", "2") as process:
            app = App(url, key=key)
            async with app:
                await _everything(app, {process.pid})
            process.send_signal(signal.SIGTERM)
            until_sync(lambda: process.poll() is not None)
            assert process.returncode == 0
    assert not list((tmp_path / "far").glob("*.db*"))


async def _everything(app: App, pids: set[int]) -> None:
    async def run(task: str, **payload: Any) -> Any:
        return await (await app.submit(task, payload)).result(timeout=90)

    await until(lambda: app.tasks.knows("together"))
    assert await run("note", n=7, seconds=0.0) == 7
    assert await run("parent", n=3) == 3
    assert await run("stepping") == 1, "what a step gave is kept over a retry"
    squared, child, parent = await run("elsewhere", n=9)
    assert squared == 81
    assert child != parent
    assert await run("blocking") == "done"
    streaming = await app.submit("stream", {"n": 5})
    assert [item async for item in streaming.stream()] == [0, 1, 2, 3, 4]
    told = await app.submit("tell", {})
    await told.result(timeout=90)
    await until(lambda: _lines(app, told.id))
    spans = sorted(await asyncio.gather(*(run("alone") for _ in range(4))))
    assert all(one[1] <= other[0] for one, other in pairwise(spans)), "one at a time"
    assert sorted(await asyncio.gather(*(run("together", numbers=n) for n in range(12)))) == list(range(12))
    async with app.batch(on_complete=await app.draft("all_done", {})) as batch:
        for n in range(3):
            batch.add(await app.draft("note", {"n": n, "seconds": 0.0}))
    await batch.wait(timeout=90)
    await until(lambda: app.jobs.count(task="all_done", status="completed"))
    await app.schedules.set("often", Every(1.0), await app.draft("tell", {}))
    await until(lambda: app.jobs.count(schedule="often", status="completed"), within=90)
    await app.schedules.delete("often")
    assert len({row.info.pid for row in await app.workers.list() if "note" in row.info.tasks}) == 2
    with pytest.raises(NotSupported, match="connection"):
        await (await app.draft("note", {"n": 1, "seconds": 0.0}, connection=object())).submit()


async def _lines(app: App, id: Any) -> bool:
    return [line.message async for line in app.jobs.logs(id)] == ["a line from far away"]


async def test_a_hub_is_killed_and_comes_back_and_nothing_is_lost_or_done_twice(tmp_path: Path) -> None:
    store, port, jobs = f"sqlite:///{tmp_path}/jobs.db", free_port(), 40
    key = await make_key(store)
    url, notes = f"hub+http://127.0.0.1:{port}", tmp_path / "far" / "notes.txt"
    app = App(url, key=key)
    with (
        started(tmp_path, "hub", "--no-webhooks", "--url", store, port=port) as hub,
        worker(tmp_path / "far", url, key, "--concurrency", "4"),
    ):
        async with app:
            await until(lambda: app.tasks.knows("note"))
            handles = [await app.submit("note", {"n": n, "seconds": 0.3}) for n in range(jobs)]
            await until(lambda: notes.exists() and len(notes.read_text().split()) >= 4)
            hub.end(signal.SIGKILL)
            ran = len(notes.read_text().split())
            assert ran < jobs, "it was killed in the middle"
            # Handlers that run go on without a hub, and what they have to say waits for one.
            late = asyncio.create_task(app.submit("note", {"n": jobs, "seconds": 0.0}))
            with started(tmp_path, "hub", "--no-webhooks", "--url", store, port=port):
                handles.append(await late)
                results = [await handle.result(timeout=120) for handle in handles]
                assert results == list(range(jobs + 1))
                assert sorted(map(int, notes.read_text().split())) == results, "each of them ran once"
                for handle in handles:
                    [attempt] = (await app.jobs.history(handle.id)).attempts
                    assert attempt.outcome == "completed"
                assert (await app.stats.counts()).ledger.unaccounted == 0
