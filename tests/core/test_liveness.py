"""Counting in looks."""

from __future__ import annotations

from headrace.core.liveness import Sighting, Sightings


def seen(looks: list[tuple[str, float, float]], gap: float = 10.0) -> Sighting:
    """What is known of "a" after looks at (keys, before, after)."""
    sightings: Sightings[str] = Sightings(gap)
    for keys, before, after in looks:
        sightings.look(keys, before, after)
    return sightings.of("a")


def test_what_was_never_seen_counts_nothing() -> None:
    assert seen([]) == (0, 0.0)
    assert seen([("b", 0, 0)]) == (0, 0.0)


def test_what_stays_is_counted_in_looks_and_seconds() -> None:
    assert seen([("a", 0, 0)]) == (1, 0.0)
    assert seen([("a", 0, 0), ("ab", 5, 5), ("a", 9, 9)]) == (3, 9.0)


def test_only_the_time_that_certainly_passed_counts() -> None:
    assert seen([("a", 0, 2), ("a", 5, 8)]) == (2, 3.0)


def test_what_was_away_begins_anew() -> None:
    assert seen([("a", 0, 0), ("b", 5, 5), ("a", 9, 9)]) == (1, 0.0)


def test_a_gap_forgets_everything() -> None:
    assert seen([("a", 0, 0), ("a", 10, 10)]) == (2, 10.0)
    assert seen([("a", 0, 0), ("a", 10.1, 10.1)]) == (1, 0.0)


def test_a_look_that_hangs_is_a_gap() -> None:
    assert seen([("a", 0, 0), ("a", 5, 45), ("a", 46, 46)]) == (1, 0.0)
    assert seen([("a", 0, 0), ("a", 5, 45), ("a", 46, 46), ("a", 50, 50)]) == (2, 4.0)


def test_a_look_may_go_on() -> None:
    sightings: Sightings[str] = Sightings(10)
    sightings.look("a", 0, 0)
    sightings.look("a", 4, 4)
    sightings.add("ab", 5)
    assert sightings.of("a") == (2, 4.0)
    assert sightings.of("b") == (1, 0.0)
    sightings.look("ab", 9, 9)
    assert sightings.of("b") == (2, 4.0)
