"""Rates: never more than was allowed, in whatever span, and the next permit when it is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits.rate import Rate, Spent, next_permit, permits, spend
from headrace.errors import ConfigError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KINDS = ["fixed", "sliding", "bucket"]


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def run(rate: Rate, moments: list[float]) -> list[float]:
    """Begin as often as is allowed at each of these moments; when."""
    spent: Spent = ()
    begun: list[float] = []
    for moment in moments:
        while permits(rate, spent, at(moment)) > 0:
            spent = spend(rate, spent, at(moment))
            begun.append(moment)
    return begun


def test_a_fixed_window_begins_anew() -> None:
    rate = Rate(3, per=60)
    assert run(rate, [0, 10, 59.9, 60, 61, 130]) == [0, 0, 0, 60, 60, 60, 130, 130, 130]


def test_windows_are_counted_from_midnight_not_from_the_first_job() -> None:
    assert run(Rate(2, per=60), [50, 60]) == [50, 50, 60, 60]


def test_a_sliding_window_holds_in_any_span() -> None:
    begun = run(Rate(3, per=60, kind="sliding"), [50, 60, 109, 112, 180])
    assert begun == [50, 50, 50, 112, 112, 112, 180, 180, 180]


def test_a_bucket_fills_evenly_and_saves_up_no_more_than_its_limit() -> None:
    rate = Rate(6, per=60, kind="bucket")
    assert run(rate, [0, 5, 10, 15, 20, 200]) == [0.0] * 6 + [10, 20] + [200] * 6


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_permit_is_there_when_it_is_said_and_not_before(kind: Any) -> None:
    rate = Rate(4, per=10, kind=kind)
    spent: Spent = ()
    for _ in range(4):
        spent = spend(rate, spent, at(3))
    assert permits(rate, spent, at(3)) == 0
    soon = next_permit(rate, spent, at(3))
    assert at(3) < soon <= at(3) + timedelta(seconds=10.2)
    assert permits(rate, spent, soon - timedelta(microseconds=1)) == 0
    assert permits(rate, spent, soon) >= 1
    assert next_permit(rate, spent, soon) == soon


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_is_set_back_holds_nobody_up_for_longer_than_a_window(kind: Any) -> None:
    rate = Rate(2, per=60, kind=kind)
    spent: Spent = ()
    for _ in range(2):
        spent = spend(rate, spent, at(0))
    assert next_permit(rate, spent, at(-86400)) <= at(-86400 + 62)


@given(
    limit=st.integers(1, 20),
    per=st.sampled_from([0.5, 7.0, 60.0, 3600.0]),
    steps=st.lists(st.floats(0, 2), max_size=60),
)
def test_no_span_has_more_than_the_limit(limit: int, per: float, steps: list[float]) -> None:
    moments, now = list[float](), 0.0
    for step in steps:
        now += step * per / 5
        moments.append(now)
    sliding = run(Rate(limit, per=per, kind="sliding"), moments)
    for first in sliding:
        assert sum(first <= moment < first + per for moment in sliding) <= limit
    bucket = run(Rate(limit, per=per, kind="bucket"), moments)
    for index, first in enumerate(bucket):
        for last in bucket[index:]:
            allowed = limit + (last - first) / per * limit
            assert sum(first <= moment <= last for moment in bucket) <= allowed + 1e-6


@given(kind=st.sampled_from(KINDS), limit=st.integers(1, 50), gaps=st.lists(st.floats(0, 30), max_size=30))
def test_what_is_kept_stays_small(kind: Any, limit: int, gaps: list[float]) -> None:
    rate, now = Rate(limit, per=60, kind=kind), 0.0
    spent: Spent = ()
    for gap in gaps:
        now += gap
        if permits(rate, spent, at(now)):
            spent = spend(rate, spent, at(now))
        assert len(spent) <= 62
    assert msgspec.json.decode(msgspec.json.encode(spent), type=Spent) == spent


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"limit": 0, "per": 1}, "limit"),
        ({"limit": True, "per": 1}, "limit"),
        ({"limit": 1, "per": 0}, "per"),
        ({"limit": 1, "per": -1}, "per"),
        ({"limit": 1, "per": 1, "kind": "leaky"}, "kind"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Rate(**arguments)


def test_a_rate_is_a_setting() -> None:
    rate = Rate(100, per=timedelta(minutes=1), kind="sliding", keyed=True)
    assert msgspec.json.decode(msgspec.json.encode(rate), type=Rate) == rate
