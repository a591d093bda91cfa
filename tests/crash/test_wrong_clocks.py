"""Wrong clocks, clocks that are set, and a machine that sleeps, with real workers: nobody is charged for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.wrong_clock_scene import play

pytestmark = pytest.mark.timeout(240)


@pytest.mark.xdist_group("crash postgres")
async def test_workers_with_wrong_clocks_run_nothing_early_late_or_expired(tmp_path: Path) -> None:
    figures = await play(tmp_path, 5)
    assert figures.moved < 6
