"""A lone job on the thread of its submitter; what all engines promise of it is in the conformance suite."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from headrace.conformance.lab import Lab
from headrace.core.job import Job
from headrace.engine import Inserted
from headrace.engines.sqlite import SqliteEngine
from headrace.errors import StoreLost
from tests.support.until import until


def direct(lab: Lab) -> SqliteEngine:
    assert isinstance(lab.engine, SqliteEngine)
    return lab.engine


async def offer(lab: Lab, job: Job) -> Inserted | None:
    return await asyncio.to_thread(direct(lab).direct.insert, job, lab.now)


async def taken(lab: Lab, job: Job) -> Inserted:
    """Offer the job until the thread of the writer is free to lend its connection."""
    found = list[Inserted]()

    async def take() -> bool:
        answer = await offer(lab, job)
        found.extend([] if answer is None else [answer])
        return answer is not None

    await until(take)
    return found[0]


async def test_a_job_of_a_line_that_is_known_is_taken(lab: Lab) -> None:
    assert await offer(lab, lab.job()) is None, "nobody has said which number the line has"
    await lab.put()
    job = lab.job()
    answer = await taken(lab, job)
    assert await lab.get(job) == answer.job
    assert await offer(lab, lab.job(queue="another")) is None


async def test_lines_that_were_collected_are_learned_anew(lab: Lab) -> None:
    await lab.put()
    await taken(lab, lab.job())
    other = lab.make()  # forgets the line that no job needs, as any session may
    assert isinstance(other, SqliteEngine)
    await other.open()
    await other._writer.run(lambda connection: connection.execute("UPDATE books SET collected = collected + 1"))
    await other.close()
    job = lab.job()
    assert await offer(lab, job) is None
    assert isinstance((await lab.insert(job))[0], Inserted)
    await taken(lab, lab.job())


async def test_a_file_that_is_gone_is_told_before_anything_is_acknowledged(lab: Lab, file: Path) -> None:
    await lab.put()
    await taken(lab, lab.job())
    os.rename(file, file.with_name("elsewhere.db"))
    with pytest.raises(StoreLost, match="deleted or moved"):
        await taken(lab, lab.job())
    os.rename(file.with_name("elsewhere.db"), file)
    await taken(lab, lab.job())
