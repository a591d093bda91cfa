"""When a worker counts as silent, and how that is told."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.core.lifecycle.liveness import silent_since, told_silence
from headrace.engine import Beat
from tests.core.explain.test_job import NOW, RULES, worker


@pytest.mark.parametrize(("seconds", "silent"), [(-5, False), (0, False), (30, False), (30.001, True), (86400, True)])
def test_silent_is_who_was_not_heard_of_for_longer_than_its_lease(seconds: float, silent: bool) -> None:
    now = NOW + timedelta(seconds=seconds)
    assert silent_since(NOW, now, 30.0) == (NOW if silent else None)


@pytest.mark.parametrize(("seconds", "words"), [(31, "31 s"), (240, "4 min"), (7300, "2 h"), (86400 * 3, "3 d")])
def test_it_is_told_how_long(seconds: float, words: str) -> None:
    assert told_silence(NOW, NOW + timedelta(seconds=seconds)) == f"silent for {words}"


@pytest.mark.parametrize("state", ["running", "draining", "blocked"])
def test_a_worker_as_it_is_heard_of(state: str) -> None:
    row, later = worker(beat=Beat(state=state)), NOW + timedelta(seconds=31)
    assert row.as_heard(NOW, RULES) == row
    assert row.takes is (state != "draining")
    silent = row.as_heard(later, RULES)
    assert (silent.alive, silent.silent_since, silent.beat.state, silent.takes) == (False, NOW, "silent", False)
    assert silent.as_heard(later, RULES) == silent


def test_who_was_buried_is_dead_and_not_only_silent() -> None:
    dead = worker(alive=False).as_heard(NOW + timedelta(hours=1), RULES)
    assert (dead.alive, dead.silent_since, dead.beat.state) == (False, None, "dead")
    assert dead.as_heard(NOW, RULES) == dead


def test_each_worker_is_judged_by_its_own_lease() -> None:
    later = NOW + timedelta(seconds=31)
    assert worker(lease=60.0).as_heard(later, RULES).alive
    assert not worker(lease=5.0).as_heard(NOW + timedelta(seconds=6), RULES).alive
