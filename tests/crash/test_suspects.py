"""A job that kills its workers dies with its budget, and no job beside it dies of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.poisoned import app, instant, late_poison, long, poison, poisoned_together, together
from tests.support.crew import crew
from tests.support.poisoning import RETRIES, calls, outlive
from tests.support.servers import schemas

pytestmark = pytest.mark.timeout(480)

STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


async def test_instant_jobs_beside_one_that_exits(url: str, tmp_path: Path) -> None:
    """All are lost together, with the same backoff and no jitter, by the one worker there is."""
    note, flags, policy = tmp_path / "calls", ("--concurrency", "40"), RETRIES["fixed"]
    with app.override(url=url), crew(url, tmp_path, "tests.crash.poisoned:app") as workers:
        async with app:
            chosen = instant.options(retry=policy)
            before = await chosen.map([(n,) for n in range(16)])
            bad = await poison.options(retry=policy).submit(str(note))
            after = await chosen.map([(n,) for n in range(16)])
            workers.hire(*flags)
            await outlive(app, workers, bad, [one.id for one in (*before, *after)], flags=flags, within=240)
            assert calls(note) <= policy.max_attempts + 2


@pytest.mark.xdist_group("crash sqlite")
async def test_long_neighbours_with_one_retry(tmp_path: Path) -> None:
    """They are at work, on record, whenever the worker dies, and have no attempt to spare."""
    url, note, flags = f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path / "calls", ("--concurrency", "10")
    with app.override(url=url), crew(url, tmp_path, "tests.crash.poisoned:app") as workers:
        async with app:
            neighbours = await long.options(retry=RETRIES["one"]).map([(n, 1.5) for n in range(9)])
            bad = await late_poison.options(retry=RETRIES["fixed"]).submit(str(note))
            workers.hire(*flags)
            await outlive(app, workers, bad, [one.id for one in neighbours], flags=flags, within=240)
            assert calls(note) <= RETRIES["fixed"].max_attempts + 2


@pytest.mark.xdist_group("crash sqlite")
async def test_bulk_calls(tmp_path: Path) -> None:
    """Who is in one call with the poison, and who is in another call of the same worker."""
    url, note, flags = f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path / "calls", ("--concurrency", "8")
    with app.override(url=url), crew(url, tmp_path, "tests.crash.poisoned:app") as workers:
        async with app:
            policy = RETRIES["fixed"]
            near = await poisoned_together.options(retry=policy).map([("",) for _ in range(19)])
            bad = await poisoned_together.options(retry=policy).submit(str(note))
            far = await together.options(retry=policy).map([(n,) for n in range(40)])
            workers.hire(*flags)
            await outlive(app, workers, bad, [one.id for one in (*near, *far)], flags=flags, within=240)
            assert calls(note) <= policy.max_attempts + 2
