"""A minute of load on workers whose clocks are wrong by up to an hour: nothing early, late, expired or timed out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.wrong_clock_scene import Scene, play

SECONDS = 60.0
LATE = 6.0
"""Seconds: in this time a planner that died is missed, and another plans."""

pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("holder", [3600, -3600])
async def test_a_minute_of_load_on_workers_with_wrong_clocks(holder: int, tmp_path: Path) -> None:
    """The lease is that of the defaults: long enough that only the proof of its holder's death can move a duty."""
    found = await play(tmp_path, Scene(SECONDS, holder, beat=10.0, lease=30.0, late=LATE))
    print(
        f"\nthe holder's clock {holder:+} s: {found.jobs} jobs, {found.fires} fires in {SECONDS:.0f} s; the latest"
        f" began {found.latest:.2f} s after its moment, the latest fire {found.latest_fire:.2f} s, the longest gap"
        f" {found.longest_gap:.0f} s, an expiry was found after {found.swept:.1f} s; duties moved in"
        f" {found.moved:.1f} s"
    )
    assert found.moved < 6
