"""Which worker processes live, as the store has it, and whether somebody was taken for dead."""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable

from headrace import App
from headrace.engine import WorkerRow
from tests.support.crew import Crew

BY_PROOF, BY_LOOKS = "is dead: its process has ended", "is dead: silent for"


async def living(app: App) -> dict[int, WorkerRow]:
    """The living, by process."""
    return {row.info.pid: row for row in await app.workers.list() if row.alive}


async def are_living(app: App, *members: subprocess.Popen[bytes]) -> bool:
    """Whether all these are."""
    return set(await living(app)) >= {member.pid for member in members}


async def the_same_workers(app: App, before: dict[int, WorkerRow]) -> bool:
    """Whether each process still is the worker that it was."""
    now = await living(app)
    return {pid: row.info.id for pid, row in now.items()} == {pid: row.info.id for pid, row in before.items()}


async def have_beaten(app: App, before: dict[int, WorkerRow], *, proof: bool) -> bool:
    """Whether all have beaten since, and (``proof``) say another proof."""
    now = await living(app)
    return all(
        pid in now and now[pid].beats > row.beats and (not proof or now[pid].proof not in (None, row.proof))
        for pid, row in before.items()
    )


async def quietly(check: Awaitable[bool]) -> bool:
    """False while the store is away."""
    try:
        return await check
    except ConnectionError:
        return False


def said(workers: Crew) -> str:
    """What all of them have printed."""
    return "".join(workers.said(member) for member in workers.members)
