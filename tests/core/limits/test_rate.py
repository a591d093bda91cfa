"""Rates: never more than was allowed, in whatever span, and the next permit when it is said."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits.rate import MAX_LEAD_SECONDS, Rate, Spent, micros, next_permit, permits, spend, trimmed
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", [0.0, 59.0])
def test_after_the_clock_was_set_back_a_window_later_all_is_as_ever(kind: Any, moment: float) -> None:
    """Whoever looks meanwhile stores what is left: otherwise it would count until the clock has caught up."""
    rate, back = Rate(2, per=60, kind=kind), moment - 86400
    spent: Spent = ()
    for _ in range(2):
        spent = spend(rate, spent, at(moment))
    begun = list[float]()
    for later in range(0, 125, 5):
        now = at(back + later)
        if permits(rate, spent, now):
            spent = spend(rate, spent, now)
            begun.append(back + later)
        else:
            spent = trimmed(rate, spent, now) or spent
    assert back < begun[0] <= back + 65
    assert len(begun) >= 2


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_trimmed_that_another_claim_may_have_spent(kind: Any) -> None:
    """Claims overtake one another: one that asked earlier must not shorten what a later one has spent."""
    rate = Rate(5, per=1, kind=kind)
    spent = spend(rate, (), at(20), 5, lead=MAX_LEAD_SECONDS)
    assert trimmed(rate, spent, at(0)) is None
    assert permits(rate, spent, at(0)) == 0
    assert permits(rate, spend(rate, spent, at(0), 0), at(20)) == 0


class Claim(msgspec.Struct):
    """One claim: how long after the one before the store deals it, how long before that it was asked, with which lead,
    for how many, and where within its span each of them begins (0 to 1)."""

    gap: float
    delay: float
    lead: float
    starts: list[float]


def claims(per: float) -> st.SearchStrategy[list[Claim]]:
    """Any claims, on the scale of the window."""
    part = st.one_of(st.sampled_from([0.0, 0.001, 0.05, 0.5, 1.0]), st.floats(0, 3)).map(lambda one: one * per / 4)
    lead = part.map(lambda one: min(one, MAX_LEAD_SECONDS))
    # A claim of a worker that stood still for longer is that of a dead one, and given nothing.
    delay = st.one_of(st.just(0.0), lead)
    starts = st.lists(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)), min_size=1, max_size=30)
    return st.lists(st.builds(Claim, gap=part, delay=delay, lead=lead, starts=starts), max_size=40)


def begun(rate: Rate, sequence: list[Claim]) -> list[int]:
    """When the handlers of these claims are called, in microseconds: not before the store has dealt the claim, and not
    after the lead of the moment at which it was asked; what cannot begin within is given back, its permit lost."""
    spent: Spent = ()
    real, calls = 0.0, list[int]()
    for claim in sequence:
        real += claim.gap
        now = at(max(0.0, real - claim.delay))
        first, last = micros(at(real)), micros(now + timedelta(seconds=claim.lead))
        for place in claim.starts:
            if permits(rate, spent, now) < 1:
                break
            spent = spend(rate, spent, now, lead=claim.lead)
            if first <= last:
                calls.append(first + round(place * (last - first)))
    return sorted(calls)


SPANS = st.sampled_from([0.05, 1.0, 10.0, 3600.0])


@given(limit=st.integers(1, 12), per=SPANS, data=st.data())
def test_no_fixed_window_has_more_calls_than_its_limit(limit: int, per: float, data: st.DataObject) -> None:
    calls = begun(Rate(limit, per=per), data.draw(claims(per)))
    windows = Counter(call // round(per * 1_000_000) for call in calls)
    assert max(windows.values(), default=0) <= limit


@given(limit=st.integers(1, 12), per=SPANS, data=st.data())
def test_no_span_of_a_sliding_window_has_more_calls_than_its_limit(limit: int, per: float, data: st.DataObject) -> None:
    calls = begun(Rate(limit, per=per, kind="sliding"), data.draw(claims(per)))
    for earlier, later in zip(calls, calls[limit:], strict=False):
        assert later - earlier >= per * 1_000_000


@given(limit=st.integers(1, 12), per=SPANS, data=st.data())
def test_no_span_has_more_calls_than_a_full_bucket_and_what_came_in_meanwhile(
    limit: int, per: float, data: st.DataObject
) -> None:
    calls = begun(Rate(limit, per=per, kind="bucket"), data.draw(claims(per)))
    for index, first in enumerate(calls):
        for count, last in enumerate(calls[index:], 1):
            assert (count - limit) * per * 1_000_000 <= (last - first) * limit


def saturated(rate: Rate, lead: float, seconds: float) -> list[float]:
    """When claims are dealt one whenever there is a permit, from noon on."""
    spent: Spent = ()
    now, dealt = at(0), list[float]()
    while now < at(seconds):
        while permits(rate, spent, now):
            spent = spend(rate, spent, now, lead=lead)
            dealt.append((now - at(0)).total_seconds())
        now = next_permit(rate, spent, now)
    return dealt


@pytest.mark.parametrize(("limit", "per"), [(7, 1.0), (3, 1.0), (11, 60.0), (1000, 0.999)])
def test_a_bucket_whose_permits_are_no_whole_microseconds_apart_gives_none_too_early(limit: int, per: float) -> None:
    rate, spent, now, calls = Rate(limit, per=per, kind="bucket"), Spent(), NOON, list[int]()
    while len(calls) < 4 * limit:
        while permits(rate, spent, now):
            spent = spend(rate, spent, now)
            calls.append(micros(now) - micros(NOON))
        now = next_permit(rate, spent, now)
    for count, last in enumerate(calls, 1):
        assert (count - limit) * round(per * 1_000_000) <= last * limit


def test_with_jobs_always_in_line_a_fixed_window_loses_nothing_to_the_lead() -> None:
    assert len(saturated(Rate(50, per=10), 0.1, 100)) == 500


def test_what_begins_near_the_edge_of_a_fixed_window_counts_on_both_sides() -> None:
    rate = Rate(3, per=10)
    spent = spend(rate, (), at(9.95), 2, lead=0.1)
    assert permits(rate, spent, at(9.99)) == 1
    assert permits(rate, spent, at(10)) == 1
    assert permits(rate, spent, at(20)) == 3
    assert permits(rate, spend(rate, (), at(9.8), 2, lead=0.1), at(10)) == 3


def test_a_sliding_window_is_longer_by_the_lead_and_a_sixtieth_of_it() -> None:
    dealt = saturated(Rate(50, per=10, kind="sliding"), 0.1, 1000)
    cycle = 10 + 0.1 + 10 / 60
    assert 50 * 1000 / cycle * 0.99 <= len(dealt) <= 50 * 1000 / 10.1 + 50


def test_a_bucket_is_smaller_by_what_comes_in_during_the_lead_and_as_fast() -> None:
    dealt = saturated(Rate(50, per=10, kind="bucket"), 1.0, 1000)
    assert dealt.count(0.0) == 50 - 5
    assert len(dealt) == 45 + 50 * 100 - 1


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


@given(
    kind=st.sampled_from(KINDS),
    limit=st.integers(1, 50),
    per=st.sampled_from([0.001, 1.0, 60.0]),
    lead=st.sampled_from([0.0, 0.05, 30.0]),
    gaps=st.lists(st.floats(0, 30), max_size=30),
)
def test_what_is_kept_stays_small(kind: Any, limit: int, per: float, lead: float, gaps: list[float]) -> None:
    rate, now = Rate(limit, per=per, kind=kind), 0.0
    spent: Spent = ()
    for gap in gaps:
        now += gap
        if permits(rate, spent, at(now)):
            spent = spend(rate, spent, at(now), lead=lead)
        assert len(spent) <= 124
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
