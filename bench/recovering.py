"""A worker of one side with its default settings, and a job that runs until it is allowed to end.

``python -m bench.recovering ENGINE SIDE STORE FOLDER [submit]``: run a worker; or submit one job and leave.

The job adds a line to ``FOLDER/starts`` whenever it begins, its process and the time, and ends when ``FOLDER/gate`` is
there.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["main", "wait"]

PAUSE = 0.02


def _begin(folder: str) -> Path:
    with (Path(folder) / "starts").open("a") as file:
        file.write(f"{os.getpid()} {time.time()}\n")
    return Path(folder) / "gate"


async def wait(folder: str) -> None:
    """Note the start, and wait until the job may end."""
    gate = _begin(folder)
    while not gate.exists():  # noqa: ASYNC110 - there is nothing else to wait for
        await asyncio.sleep(PAUSE)


async def _procrastinate(store: str, folder: str, submit: bool) -> None:
    procrastinate: Any = importlib.import_module("procrastinate")
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=store))

    @app.task(name="long", retry=True)  # type: ignore[untyped-decorator]
    async def long(folder: str) -> None:
        await wait(folder)

    async with app.open_async():
        if submit:
            await app.schema_manager.apply_schema_async()
            await long.defer_async(folder=folder)
        else:
            await app.run_worker_async()


async def _pgqueuer(store: str, folder: str, submit: bool) -> None:
    asyncpg: Any = importlib.import_module("asyncpg")
    db: Any = importlib.import_module("pgqueuer.db")
    queries: Any = importlib.import_module("pgqueuer.queries")
    async with asyncpg.create_pool(store) as pool:
        made = queries.Queries(db.AsyncpgPoolDriver(pool))
        if submit:
            await made.install()
            await made.enqueue("long", folder.encode())
            return
        manager = importlib.import_module("pgqueuer.qm").QueueManager(made)

        @manager.entrypoint("long")  # type: ignore[untyped-decorator]
        async def long(job: Any) -> None:
            await wait(job.payload.decode())

        await manager.run()


async def _oban(store: str, folder: str, submit: bool) -> None:
    oban: Any = importlib.import_module("oban")

    class _Long:
        async def process(self, job: Any) -> None:
            await wait(job.args["folder"])

    long: Any = oban.worker(queue="default")(_Long)
    pool = await oban.Oban.create_pool(store)
    if submit:
        await importlib.import_module("oban.schema").install(pool)
        async with oban.Oban(pool=pool) as client:
            await client.enqueue(long.new({"folder": folder}))
    else:
        async with oban.Oban(pool=pool, queues={"default": 10}):
            await asyncio.Event().wait()
    await pool.close()


def _huey(store: str, folder: str, submit: bool) -> None:
    sys.modules["redis"] = None  # type: ignore[assignment]
    huey = importlib.import_module("huey").SqliteHuey(filename=store)

    @huey.task(retries=3, name="long")  # type: ignore[untyped-decorator]
    def long(folder: str) -> None:
        gate = _begin(folder)
        while not gate.exists():
            time.sleep(PAUSE)

    if submit:
        long(folder)
    else:
        huey.create_consumer().run()


def main(argv: list[str]) -> None:
    """Do as told."""
    _, side, store, folder, *rest = argv
    if side == "huey":
        _huey(store, folder, bool(rest))
        return
    work = {"procrastinate": _procrastinate, "pgqueuer": _pgqueuer, "oban": _oban}[side]
    asyncio.run(work(store, folder, bool(rest)))


if __name__ == "__main__":
    main(sys.argv[1:])
