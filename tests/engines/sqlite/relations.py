"""Jobs that wait for others, and a look at what the writing connection is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from headrace.conformance.lab import Lab
from headrace.core.job import Job
from headrace.engines.sqlite import SqliteEngine

__all__ = ["after", "counted"]


def after(lab: Lab, *parents: Job, **spec: Any) -> Job:
    """A job that waits for these."""
    return lab.job("child", waits=len(parents), after=tuple(job.id for job in parents), **spec)


@asynccontextmanager
async def counted(lab: Lab) -> AsyncIterator[list[str]]:
    """The statements that the writing connection runs."""
    assert isinstance(lab.engine, SqliteEngine)
    seen: list[str] = []

    def note(cursor: object, text: str, values: object) -> bool:
        seen.append(text)
        return True

    await lab.engine._writer.run(lambda connection: connection.set_exec_trace(note))
    yield seen
    await lab.engine._writer.run(lambda connection: connection.set_exec_trace(None))
