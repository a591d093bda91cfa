"""A minute of load on workers whose clocks are wrong by up to an hour: nothing early, late, expired or timed out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.wrong_clock_scene import play

SECONDS = 60.0

pytestmark = pytest.mark.timeout(400)


async def test_a_minute_of_load_on_workers_with_wrong_clocks(tmp_path: Path) -> None:
    found = await play(tmp_path, SECONDS)
    print(
        f"\n{found.jobs} jobs, {found.fires} fires in {SECONDS:.0f} s; the latest began {found.latest:.2f} s after its"
        f" moment, the latest fire {found.latest_fire:.2f} s; duties moved in {found.moved:.1f} s"
    )
    assert found.moved < 6
