"""When a worker is dead, and when a passed deadline counts: looks, not clocks."""

from __future__ import annotations

import pytest

from headrace.core.defaults import Rules
from headrace.core.lifecycle.liveness import (
    POLL_BEAT_RATIO,
    Seen,
    SoleVoice,
    Watch,
    died_together,
    is_certain,
    is_dead,
    is_gone,
    is_late,
    patience,
    poll_in,
    time_to_return,
)
from headrace.core.status import Cause


def seen(looks: list[tuple[str, float, float]], gap: float = 10.0) -> Seen:
    """What is known of "a" after looks at (keys, before, after)."""
    watch: Watch[str] = Watch(gap)
    for keys, before, after in looks:
        watch.look(keys, before, after)
    return watch.of("a")


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
    watch: Watch[str] = Watch(10)
    watch.look("a", 0, 0)
    watch.look("a", 4, 4)
    watch.add("ab", 5)
    assert watch.of("a") == (2, 4.0)
    assert watch.of("b") == (1, 0.0)
    watch.look("ab", 9, 9)
    assert watch.of("b") == (2, 4.0)


@pytest.mark.parametrize(
    ("looks", "seconds", "dead"), [(0, 0, False), (3, 29.9, False), (2, 1000, False), (3, 30, True), (9, 31, True)]
)
def test_dead_is_who_stood_still_for_a_lease_in_three_looks(looks: int, seconds: float, dead: bool) -> None:
    assert is_dead(Seen(looks, seconds), Rules(lease=30)) is dead


@pytest.mark.parametrize(
    ("looks", "seconds", "late"), [(0, 0, False), (1, 60, False), (2, 4.9, False), (2, 5, True), (3, 9, True)]
)
def test_a_deadline_counts_when_it_was_seen_twice_half_a_beat_apart(looks: int, seconds: float, late: bool) -> None:
    assert is_late(Seen(looks, seconds), Rules(beat=10)) is late


@pytest.mark.parametrize(
    ("looks", "seconds", "steady", "late"),
    [(1, 1, 9, False), (2, 0.9, 9, False), (2, 1, 1.4, False), (2, 1, 1.5, True), (3, 3, 3, False), (3, 5, 0, True)],
)
def test_a_deadline_counts_sooner_where_the_store_replied_before_it(
    looks: int, seconds: float, steady: float, late: bool
) -> None:
    assert is_late(Seen(looks, seconds), Rules(beat=10), steady) is late


@pytest.mark.parametrize(
    ("next_in", "unsettled", "waited"),
    [
        (None, False, float("inf")),
        (None, True, 1.0),
        (100.0, True, 1.0),
        (100.0, False, 99.0),  # first a second before it
        (1.0, False, 1.0),
        (0.7, False, 0.7),
        (1.2, False, 0.5),
        (0.001, False, 0.5),  # many deadlines one after another make two polls a second
    ],
)
def test_polls_come_before_a_deadline_and_at_it(next_in: float | None, unsettled: bool, waited: float) -> None:
    assert poll_in(next_in, Rules(beat=10), unsettled=unsettled) == waited


def test_polls_about_a_time_out_end_within_its_slack() -> None:
    for rules in (Rules(), Rules(beat=0.5, timeout_slack=1.0), Rules(beat=60, lease=180)):
        assert rules.timeout_check + rules.recheck < rules.timeout_slack
    assert Rules(timeout_slack=0.0).timeout_check == 0.0


@pytest.mark.parametrize("cause", [None, *Cause])
def test_only_deadlines_need_a_second_look(cause: Cause | None) -> None:
    assert is_certain(cause) is (cause in {None, Cause.LEASE, Cause.BEAT})


def test_looks_come_often_enough_to_be_one_watch_and_to_bury_after_a_lease() -> None:
    rules = Rules()
    pause = POLL_BEAT_RATIO * rules.beat
    assert pause <= rules.look_gap
    assert 3 * pause <= rules.lease


@pytest.mark.parametrize(
    ("looks", "seconds", "earlier", "dead"),
    [
        (3, 5, 25, True),
        (3, 5, 24.9, False),
        (3, 4.9, 1000, False),  # half a beat, in which the living would have been heard
        (2, 20, 1000, False),
        (3, 29, 1, True),
    ],
)
def test_what_earlier_watchers_saw_counts(looks: int, seconds: float, earlier: float, dead: bool) -> None:
    assert is_dead(Seen(looks, seconds), Rules(), earlier) is dead


@pytest.mark.parametrize(
    ("looks", "seconds", "gone"), [(0, 0, False), (1, 0, False), (2, 2.9, False), (2, 3, True), (9, 4, True)]
)
def test_who_is_found_gone_twice_is_dead(looks: int, seconds: float, gone: bool) -> None:
    assert is_gone(Seen(looks, seconds), 3.0) is gone


@pytest.mark.parametrize(
    ("looks", "seconds", "earlier", "dead"),
    [(3, 59.9, 0, False), (3, 60, 0, True), (2, 60, 0, False), (3, 5, 55, True), (3, 4.9, 100, False)],
)
def test_a_worker_may_have_a_lease_of_its_own(looks: int, seconds: float, earlier: float, dead: bool) -> None:
    assert is_dead(Seen(looks, seconds), Rules(), earlier, lease=60) is dead


def test_a_lease_of_its_own_may_be_shorter() -> None:
    assert is_dead(Seen(3, 6), Rules(), lease=6)
    assert not is_dead(Seen(3, 5.9), Rules(), lease=6)
    assert is_dead(Seen(3, 0), Rules(), lease=0), "none is none, and not that of the rules"


def test_a_job_kills_one_process_with_all_workers_in_it() -> None:
    assert not died_together([])
    assert not died_together([("a", 1)])
    assert not died_together([("a", 1), ("a", 1)])
    assert died_together([("a", 1), ("a", 2)])
    assert died_together([("a", 1), ("b", 1)])


@pytest.mark.parametrize(
    ("lease", "grace", "waited"), [(60.0, None, 60.0), (60.0, 10.0, 10.0), (6.0, 10.0, 6.0), (60.0, 0.0, 0.0)]
)
def test_who_was_cut_off_has_its_grace_and_never_more_than_its_lease(
    lease: float, grace: float | None, waited: float
) -> None:
    assert patience(lease, grace) == waited


def test_a_hub_speaks_alone_for_a_worker_while_its_numbers_follow_one_another() -> None:
    voice = SoleVoice()
    assert not voice.is_sole(0.0, 10.0), "it has not beaten for it"
    voice.came(6)
    for number in (7, 8, 9):
        voice.answered(number, number * 5.0)
        assert voice.is_sole(number * 5.0, 10.0)
    assert voice.number == 9


def test_a_hub_that_finds_the_beats_of_another_is_not_alone_for_a_while() -> None:
    voice = SoleVoice()
    voice.came(0)
    voice.answered(1, 0.0)
    voice.answered(5, 100.0)  # it was frozen, and the worker went elsewhere
    voice.answered(6, 101.0)
    assert not voice.is_sole(101.0, 10.0)
    assert not voice.is_sole(120.0, 10.0)
    assert voice.is_sole(120.1, 10.0), "the other has not beaten for it for as long as it may be silent there"


def test_a_worker_that_comes_is_heard_here_whoever_spoke_for_it_before() -> None:
    voice = SoleVoice()
    voice.came(0)
    voice.answered(5, 100.0)
    assert not voice.is_sole(100.0, 10.0)
    voice.came(8)
    voice.answered(9, 100.5)
    assert voice.is_sole(100.5, 10.0)


def test_a_hub_that_froze_before_its_first_beat_for_a_worker_finds_those_of_another() -> None:
    voice = SoleVoice()
    voice.came(7)
    voice.answered(12, 100.0)
    assert not voice.is_sole(100.0, 10.0)


def test_what_the_store_had_before_the_last_beat_tells_nothing() -> None:
    voice = SoleVoice()
    voice.came(7)
    voice.answered(8, 0.0)
    voice.came(7)  # it came twice, and both were told of the same number
    voice.answered(9, 1.0)
    assert voice.is_sole(1.0, 10.0)
    voice.answered(11, 2.0)
    voice.came(11)
    assert not voice.is_sole(2.0, 10.0)


@pytest.mark.parametrize(
    ("grace", "cadence", "waited"), [(10.0, 10.0, 12.5), (10.0, 15.0, 18.5), (10.0, 0.4, 10.0), (60.0, 10.0, 60.0)]
)
def test_who_was_cut_off_has_at_least_the_time_of_one_beat(grace: float, cadence: float, waited: float) -> None:
    assert time_to_return(grace, cadence) == waited


@pytest.mark.parametrize("cadence", [0.1, 0.4, 1.0, 2.0, 10.0, 30.0, 600.0])
def test_a_beat_that_is_on_time_comes_before_who_was_cut_off_is_dead(cadence: float) -> None:
    # A worker, and likewise a hub that gathers beats, looks every quarter of a beat, and every half second at least.
    assert time_to_return(0.001, cadence) > cadence + min(0.5, cadence / 4)
