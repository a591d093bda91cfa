"""What the recovery benchmark says of what it found."""

from __future__ import annotations

from bench.recovery import CASES, Found, recovery_lines


def test_median_and_worst_are_held_against_the_promise() -> None:
    quick, slow = Found([1.0, 2.0, 1.5]), Found([1.0, 3.1])
    lines = list(recovery_lines("sqlite", {CASES[0]: quick, CASES[1]: slow}, {}))
    assert "✓" in lines[1]
    assert "1.50   2.00   ≤ 3, 3 times" in lines[1]
    assert "✗" in lines[2]


def test_a_process_that_must_be_started_first_is_told_apart() -> None:
    (_, line) = recovery_lines("postgres", {CASES[4]: Found([5.0], starting=[0.8])}, {})
    assert line.endswith("5.00   5.00   ≤ 6, 1 times; of these 0.8 s to start the process")


def test_what_did_not_come_back_is_noted_as_such() -> None:
    found = {
        "procrastinate": Found(lost=3),
        "pgqueuer": Found([46.3, 31.0], lost=1),
        "oban": Found(why="Missing: no Python 3.12 or newer here"),
    }
    _, procrastinate, pgqueuer, oban = recovery_lines("postgres", {}, found)  # type: ignore[arg-type]
    assert procrastinate.endswith("not recovered after 120 s, 3 times of 3")
    assert pgqueuer.endswith("38.65  46.30, 2 times, not recovered after 120 s: 1 times")
    assert oban.endswith("not run: Missing: no Python 3.12 or newer here")
