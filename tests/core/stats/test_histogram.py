"""Histograms: any two can be added, and their quantiles are near the true ones."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.stats.histogram import BOUNDS, Histogram

_SECONDS = st.floats(0, 2_000_000)


def histogram(*seconds: float) -> Histogram:
    made = Histogram()
    for one in seconds:
        made.add(one)
    return made


def test_bounds_rise_evenly_from_a_millisecond_to_eleven_days() -> None:
    assert (BOUNDS[0], round(BOUNDS[-1])) == (0.001, 1_000_000)
    ratios = {round(upper / lower, 6) for lower, upper in pairwise(BOUNDS)}
    assert ratios == {1.333521}


@pytest.mark.parametrize(("seconds", "place"), [(0, 0), (0.001, 0), (0.0011, 1), (1.0, 24), (1e9, len(BOUNDS))])
def test_where_a_length_of_time_falls(seconds: float, place: int) -> None:
    assert histogram(seconds).counts == {place: 1}


def test_nothing_counted_has_no_quantiles() -> None:
    assert (Histogram().quantile(0.5), Histogram().quantiles(), Histogram().count) == (None, None, 0)


def test_no_histogram_shares_what_another_counts() -> None:
    one, two = Histogram(), Histogram()
    one.add(1)
    assert two.counts == {}


def test_the_usual_quantiles() -> None:
    found = histogram(*[0.1] * 90, *[2.0] * 8, *[60.0] * 2).quantiles()
    assert found is not None
    assert found.count == 100
    assert found.mean == pytest.approx(1.45)
    assert found.p50 == pytest.approx(0.1, rel=0.34)
    assert found.p95 == pytest.approx(2.0, rel=0.34)
    assert found.p99 == pytest.approx(60.0, rel=0.34)


@given(st.lists(_SECONDS, min_size=1), st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_in_the_bucket_of_the_true_one(seconds: list[float], share: float) -> None:
    rank = max(0, -(-share * len(seconds) // 1) - 1)
    true, found = sorted(seconds)[int(rank)], histogram(*seconds).quantile(share)
    assert found is not None
    place = bisect_left(BOUNDS, true)
    lower, upper = BOUNDS[place - 1] if place else 0.0, BOUNDS[min(place, len(BOUNDS) - 1)]
    assert min(lower, upper) * 0.999999 <= found <= upper * 1.000001


@given(st.lists(_SECONDS), st.lists(_SECONDS))
def test_what_is_merged_is_as_if_counted_together(one: list[float], other: list[float]) -> None:
    merged = histogram(*one)
    merged.merge(histogram(*other))
    whole = histogram(*one, *other)
    assert (merged.counts, merged.count) == (whole.counts, len(one) + len(other))
    assert merged.seconds == pytest.approx(whole.seconds)


@given(st.lists(_SECONDS))
def test_it_is_kept_as_json(seconds: list[float]) -> None:
    made = histogram(*seconds)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Histogram) == made
