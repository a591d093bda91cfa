"""What the bench of the dashboard says of its figures."""

from __future__ import annotations

from bench.dashboard import DashboardFigures, dashboards_lines


def test_each_page_and_the_drain_are_held_against_what_was_promised() -> None:
    id = "01a1e75f-cc1a-7000-a209-d3c32e526b5c"
    found = DashboardFigures(
        jobs=1_000_000,
        pages={"/": [10.0, 900.0, 20.0], f"/jobs/{id}": [301.0, 302.0, 303.0]},
        alone=[1000.0, 1100.0, 900.0],
        watched=[960.0, 940.0, 990.0],
        asked=5,
    )
    said = list(dashboards_lines(found))
    assert said[1].split() == ["✓", "/", "20.0", "(900.0)"]
    assert said[2].split() == ["✗", "/jobs/…", "302.0", "(303.0)"]
    assert "✓ beside 5 open dashboards 960: 0.96" in said[-2]
