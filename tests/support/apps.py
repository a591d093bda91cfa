"""Apps for tests: on a store of their own, open, with tasks worth submitting."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from headrace import App, Context
from headrace.engine import Beat, Engine, WorkerInfo
from tests.support.servers import schemas
from tests.support.sqlite_files import new_store

ENGINES = ("memory", "sqlite", "postgres")


def url_of(kind: str, folder: Path) -> str:
    """The URL of an empty store of this kind."""
    if kind == "postgres":
        return schemas.url_of(folder)
    return "memory://" if kind == "memory" else f"sqlite:///{new_store(folder / 'jobs.db')}?synchronous=normal"


async def busy_worker(engine: Engine, *tasks: str) -> None:
    """Somebody who could take jobs of these tasks, but for having no free slot."""
    id, now = uuid4(), datetime.now(UTC)
    await engine.workers.register(
        WorkerInfo(id=id, host="mill", pid=1, started_at=now, concurrency=1, tasks=tasks), now
    )
    await engine.workers.beat(id, Beat(busy=1), now)


class Sums:
    """An App with a coroutine function, a plain one, and one that never ends well."""

    def __init__(self, url: str = "memory://") -> None:
        self.app = App(url)

        @self.app.task
        async def add(a: int, b: int = 1) -> int:
            return a + b

        @self.app.task(queue="slow", priority=20, tags=["t"])
        def multiply(ctx: Context, a: int, b: int) -> int:
            ctx.progress(50, "half")
            return a * b

        @self.app.task(timeout=5)
        async def fail(why: str) -> None:
            raise ValueError(why)

        self.add, self.multiply, self.fail = add, multiply, fail
