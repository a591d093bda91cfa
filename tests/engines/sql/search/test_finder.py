"""Searches of stores that are too large to be gathered and sorted: here, two jobs are too many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import OOPS, Choices, Lab
from headrace.conformance.records.search import agrees, populate, wish
from headrace.core.attempt import Failed
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle import execution
from headrace.core.query import Filter
from headrace.core.status import ENDED, LIVE, Reason
from headrace.engine import Engine
from headrace.engines.sql.records import SqlRecords
from headrace.engines.sql.search import candidates
from headrace.engines.sql.search import finder as finding
from headrace.engines.sql.search.dialect import Asking
from headrace.engines.sql.search.finder import Finder
from headrace.engines.sqlite import SqliteEngine
from headrace.runtime.host import Host
from tests.support.servers.schemas import postgres_engine

T = TypeVar("T")
Make = Callable[[Path], Engine]

MAKERS: dict[str, Make] = {
    "sqlite": lambda place: SqliteEngine(place / "store.db", rules=Rules(), host=Host()),
    "postgres": lambda place: postgres_engine(Rules(), Host(), place),
}


@pytest.fixture(params=sorted(MAKERS))
def make(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]


@pytest.mark.parametrize("seed", range(2))
def test_searches_agree_with_the_core_when_there_is_much_to_look_at(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(candidates, "MAX_SORTED_CANDIDATES", 2)
    for name, value in (("MAX_FIRST_JOBS", 3), ("MAX_TEXT_CANDIDATES", 5), ("_ROUNDS", (1, 2))):
        monkeypatch.setattr(finding, name, value)

    async def main() -> None:
        lab = Lab(lambda: make(tmp_path), Host(), Rules())
        await lab.engine.open()
        try:
            choose = Choices(seed)
            jobs = await populate(lab, choose, 50)
            for _ in range(60):
                await agrees(lab, wish(lab, choose, jobs), jobs)
            lab.later(10_000_000)
            gone = await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now), 15)
            assert gone == 15
            here = {job.id for job in (await lab.engine.records.find(Filter(), lab.now, 1000)).items}
            jobs = [job for job in jobs if job.id in here]
            for _ in range(30):
                await agrees(lab, wish(lab, choose, jobs), jobs)
        finally:
            await lab.engine.close()

    asyncio.run(main())


def test_a_search_goes_from_block_to_block(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in ((candidates, "MAX_SORTED_CANDIDATES", 2), (finding, "MAX_FIRST_JOBS", 3)):
        monkeypatch.setattr(module, name, value)

    async def main() -> None:
        lab = Lab(lambda: make(tmp_path), Host(), Rules())
        await lab.engine.open()
        try:
            jobs = list[Job]()
            for batch in range(6):
                lab.later(1800)
                plain, odd = lab.job("former" if batch < 3 else "common"), lab.job("sparse", queue="aside")
                new = (replace(odd if n == 7 else plain, id=lab.new_id()) for n in range(900))
                jobs += await lab.put_all(*new)
            middle = jobs[2000].created_at
            for wanted in (
                Filter(task=frozenset({"sparse"})),
                Filter(queue=frozenset({"aside"}), created_before=middle),
                Filter(task=frozenset({"former"})),
                Filter(created_after=middle, created_before=jobs[2800].created_at),
                Filter(created_before=middle, task=frozenset({"sparse", "common"})),
            ):
                await agrees(lab, wanted, jobs, limit=400)
                await agrees(lab, wanted, jobs, limit=2) if "sparse" in wanted.task else None
        finally:
            await lab.engine.close()

    asyncio.run(main())


Write = Callable[[Lab], Coroutine[Any, Any, object]]


class Disturbed:
    """Writes to the store after one of the statements of a question, in a session of its own."""

    def __init__(self, make: Make, place: Path, finder: Finder, monkeypatch: pytest.MonkeyPatch) -> None:
        self._make, self._place, self._answer = make, place, finder.answer
        self._write: Write | None = None
        self._after, self.statements = 0, 0
        monkeypatch.setattr(finder, "answer", self.answer)

    def expect(self, after: int, write: Write) -> None:
        self._after, self._write, self.statements = after, write, 0

    async def answer(self, begin: Callable[[], Asking[T]]) -> T:
        def disturbed() -> Asking[T]:
            asking, self.statements = begin(), 0
            question = next(asking)
            while True:
                rows = yield question
                self.statements += 1
                if self.statements == self._after and self._write is not None:
                    write, self._write = self._write, None
                    with ThreadPoolExecutor(1) as pool:  # this thread has a loop that runs, or belongs to a connection
                        pool.submit(asyncio.run, self._do(write)).result()
                try:
                    question = asking.send(rows)
                except StopIteration as over:
                    answer: T = over.value
                    return answer

        return await self._answer(disturbed)

    async def _do(self, write: Write) -> None:
        lab = Lab(lambda: self._make(self._place), Host(), Rules())
        await lab.engine.open()
        try:
            await write(lab)
        finally:
            await lab.engine.close()


async def claim_all(lab: Lab) -> None:
    assert len(await lab.claim(await lab.worker())) == 3


async def release_all(lab: Lab) -> None:
    jobs = (await lab.engine.records.find(Filter(status=LIVE), lab.now)).items
    assert len(jobs) == 3
    for job in jobs:
        await lab.do(execution.release(job, lab.now))


async def delete_all(lab: Lab) -> None:
    lab.later(10_000_000)
    assert await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now), 15) == 2


def test_all_statements_of_a_question_see_the_same_moment(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        lab = Lab(lambda: make(tmp_path), Host(), Rules())
        await lab.engine.open()
        records = lab.engine.records
        assert isinstance(records, SqlRecords)
        disturbed = Disturbed(make, tmp_path, records._finder, monkeypatch)
        live = Filter(status=LIVE)

        async def page() -> list[Job]:
            return list((await records.find(live, lab.now)).items)

        async def count() -> int:
            return await records.count_matching(live, lab.now)

        try:
            jobs = await lab.put_all(*(lab.job() for _ in range(3)))
            assert await page() == jobs[::-1]
            steps = disturbed.statements
            for after in range(1, steps):
                for write in (claim_all, release_all):
                    before = await page()
                    disturbed.expect(after, write)
                    assert await page() == before, (after, write)
                    assert await page() != before
            for after in range(1, steps):
                for write in (claim_all, release_all):
                    disturbed.expect(after, write)
                    assert await count() == 3, (after, write)
            for _ in range(2):
                failing = await lab.running(await lab.worker(), "other")
                await lab.finish(failing, Failed(error=OOPS, reason=Reason.NON_RETRYABLE))
            disturbed.expect(2, delete_all)
            assert [group.jobs for group in await records.failures(Filter(), lab.now)] == [2]
            assert await records.failures(Filter(), lab.now) == []
        finally:
            await lab.engine.close()

    asyncio.run(main())
