"""Searches of stores that are too large to be gathered and sorted: here, two jobs are too many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.conformance.lab import Choices, Lab
from headrace.conformance.records.finding import agrees, populate, wish
from headrace.core.defaults import Rules
from headrace.core.query import Filter
from headrace.core.status import ENDED
from headrace.engine import Engine
from headrace.engines.sql import finding
from headrace.engines.sqlite import SqliteEngine
from headrace.runtime.host import Host
from tests.support.schemas import postgres_engine

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
    for name, value in (("FEW", 2), ("PEEK", 3), ("LOOK", 5), ("_ROUNDS", (1, 2)), ("BUCKET", finding.BUCKET)):
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
