"""Who wastes least, and that nobody starves by it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.matching.fit import MAX_HOLD_SECONDS, Rank, Waste, held_back, loaded_by, ranked, waste
from headrace.core.matching.match import meets

LARGE = {"hardware": {"gpu_memory_gb": 24}}
SMALL = {"hardware": {"gpu_memory_gb": 8}}


def first(requires: dict[str, Any], *offers: dict[str, Any]) -> int:
    """Which of these wastes least; they do not waste the same."""
    wastes = [waste(requires, one) for one in offers]
    assert len(set(wastes)) == len(wastes)
    return wastes.index(min(wastes))


@pytest.mark.parametrize(
    ("requires", "better", "worse"),
    [
        (SMALL, SMALL, LARGE),
        ({"hardware": {"gpu_memory_gb": {"min": 8}}}, SMALL, LARGE),
        ({}, SMALL, LARGE),
        ({}, {}, SMALL),
        ({"services": {"in": ["x", "all"]}}, {"services": ["x"]}, {"services": ["x", "y"]}),
        ({"services": {"in": ["x", "all"]}}, {"services": ["x", "y", "z"]}, {"services": "all"}),
        ({"services": {"in": ["x", "all"]}}, {"services": "x"}, {"services": ["x", "y"]}),
        ({}, {"services": ["x"]}, {"services": ["x", "y"]}),
        (
            {"hardware": {"gpu_memory_gb": 8}, "services": "x"},
            {"hardware": {"gpu_memory_gb": 8}, "services": "all"},
            {"hardware": {"gpu_memory_gb": 24}, "services": "x"},
        ),
        ({"hardware": {"in": [{"m": 8}], "not": {"in": [{"x": 1}]}}}, {"hardware": {"m": 9}}, {"hardware": {"m": 24}}),
        ({"models": ["a"]}, {"models": ["a"], "memory": 1}, {"models": ["a"], "memory": 2}),
    ],
)
def test_who_wastes_least(requires: dict[str, Any], better: dict[str, Any], worse: dict[str, Any]) -> None:
    assert first(requires, worse, better) == 1
    assert first(requires, better, worse) == 0


def test_what_is_needed_counts_also_beside_what_is_not_wanted() -> None:
    plain, beside = {"hardware": {"m": 8}}, {"hardware": {"in": [{"m": 8}], "not": {"in": [{"x": 1}]}}}
    for offers in ({"hardware": {"m": 8}}, {"hardware": {"m": 16}}):
        assert waste(beside, offers) == waste(plain, offers)


def test_who_has_it_loaded_comes_first() -> None:
    requires = {"components": {"in": ["x", "all"]}, **SMALL}
    loaded = loaded_by(requires)
    offers = {"components": "all"}
    assert waste(requires, {**offers, **LARGE}, loaded) < waste(requires, {"components": ["x"], **SMALL})
    other = loaded_by({"components": {"in": ["y", "all"]}})
    assert waste(requires, offers, other) == waste(requires, offers)
    assert loaded_by({"services": "x"}) is None
    assert waste(SMALL, SMALL, loaded) == waste(SMALL, SMALL), "who needs nothing loaded does not care"


NUMBERS = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 64), max_size=2)
LISTS = st.lists(st.sampled_from(["x", "y", "all"]), max_size=3)
OFFERS = st.fixed_dictionaries({"hardware": NUMBERS, "services": LISTS})
REQUIRES = st.fixed_dictionaries({}, optional={"hardware": NUMBERS, "services": st.sampled_from(["x", "y"])})


@given(REQUIRES, OFFERS, OFFERS)
def test_it_is_total_and_says_the_same_each_time(requires: Any, one: Any, other: Any) -> None:
    this, that = waste(requires, one), waste(requires, other)
    assert (this, that) == (waste(requires, one), waste(requires, other))
    assert (this < that) + (this == that) + (this > that) == 1


@given(st.integers(0, 64), st.integers(0, 64), st.integers(0, 64))
def test_of_those_that_suffice_the_smallest_comes_first(need: int, one: int, other: int) -> None:
    small, large = sorted((one, other))
    if need <= small:
        this, that = waste({"m": need}, {"m": small}), waste({"m": need}, {"m": large})
        assert this < that or (this == that and small == large)


WASTES: st.SearchStrategy[Waste] = st.tuples(st.integers(0, 1), st.floats(0, 4), st.integers(0, 9))
RANKS: st.SearchStrategy[Rank] = st.tuples(st.booleans(), WASTES, st.floats(0, 2))
CROWD = st.lists(st.dictionaries(st.integers(0, 4), RANKS, max_size=5), min_size=1, max_size=5)


@given(CROWD, st.floats(0, MAX_HOLD_SECONDS * 2))
def test_nobody_starves(crowd: list[dict[int, Rank]], waited: float) -> None:
    kept = [held_back(mine, [*crowd[:at], *crowd[at + 1 :]], waited) for at, mine in enumerate(crowd)]
    if waited >= MAX_HOLD_SECONDS:
        assert not any(kept), "whoever has waited for so long is served"
    for profile in {one for mine in crowd for one in mine}:
        free = [
            mine[profile] for mine, left in zip(crowd, kept, strict=True) if profile in mine and profile not in left
        ]
        assert free, "what somebody could be given is left to nobody by all"
        assert min(free) == min(mine[profile] for mine in crowd if profile in mine)
    assert held_back(crowd[0], [], waited) == frozenset(), "alone, nobody holds back"


@given(REQUIRES, st.lists(OFFERS, min_size=1, max_size=4))
def test_a_job_goes_to_one_that_wastes_least(requires: Any, crowd: list[Any]) -> None:
    """As a hub asks: each claim for what it does not leave to others; only then the rest."""
    able = [ranked({0: waste(requires, offers)}, (), 0.0) if meets(requires, offers) else {} for offers in crowd]
    asked = [at for at, mine in enumerate(able) if 0 in mine and not held_back(mine, able[:at] + able[at + 1 :], 0.0)]
    assert bool(asked) is any(able)
    assert all(able[at][0] == min(mine[0] for mine in able if mine) for at in asked)


def test_of_equal_waste_the_load_decides_and_before_both_who_failed_it() -> None:
    small, large = waste(SMALL, SMALL), waste(SMALL, LARGE)
    idle, busy = ranked({0: small}, (), 0.1), ranked({0: small}, (), 0.9)
    assert held_back(busy, [idle], 0.0) == {0}
    assert held_back(idle, [busy], 0.0) == frozenset()
    wasteful = ranked({0: large}, (), 0.0)
    assert held_back(wasteful, [busy], 0.0) == {0}, "what is wasted counts for more than a load"
    failed = ranked({0: small, 1: small}, {0}, 0.0)
    assert held_back(failed, [wasteful], 0.0) == {0}, "another one is to try it"
    assert held_back(wasteful, [failed], 0.0) == frozenset()
    assert held_back(failed, [wasteful], MAX_HOLD_SECONDS) == frozenset(), "for a moment"


@pytest.mark.parametrize("need", [10**400, -(10**400), 1, 1e308, {"min": 10**400}])
@pytest.mark.parametrize("offer", [10**400, -(10**400), 0.5, 1e308, -1e308])
def test_a_number_of_any_size_wastes_something(need: Any, offer: Any) -> None:
    """A store may hold them from before they were bounded."""
    _, spare, words = waste({"a": need}, {"a": offer})
    assert 0.0 <= spare <= 1.0
    assert words == 0
