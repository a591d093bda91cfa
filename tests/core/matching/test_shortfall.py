"""What is lacking, how far off it is, and how it is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.matching.match import fits, meets
from headrace.core.matching.shortfall import Lack, distance, lacks, told_lacks, told_need, told_offer
from tests.core.matching.test_match import NEED, VALUE

NAMES = st.sampled_from(["a", "b", "c"])


@given(st.dictionaries(NAMES, NEED, max_size=3), st.dictionaries(NAMES, VALUE, max_size=3))
def test_something_is_lacking_if_and_only_if_it_does_not_match(requires: Any, offers: Any) -> None:
    found = lacks(requires, offers)
    assert bool(found) is not meets(requires, offers)
    assert all(not fits(one.need, one.offer) for one in found)
    assert distance(found) >= (0, 0.0)
    needs, offered = told_lacks(found)
    assert all(one.name in needs for one in found)
    assert bool(offered) is bool(found)


@given(st.integers(1, 1000), st.integers(0, 999), st.integers(0, 999))
def test_who_offers_more_is_nearer(need: int, one: int, other: int) -> None:
    less, more = sorted((one, other))
    if more < need:
        for asked in (need, {"min": need}):
            assert distance(lacks({"m": asked}, {"m": more})) <= distance(lacks({"m": asked}, {"m": less}))
            assert distance(lacks({"m": asked}, {"m": less})) < distance(lacks({"m": asked}, {})) or less == 0


def test_each_requirement_is_named_where_it_stands() -> None:
    requires = {
        "hardware": {"gpu_memory_gb": 24, "gpu_model": "A100", "ok": 1},
        "models": ["x", "y", "z"],
        "cores": {"min": 4, "max": 8, "not": 6},
        "zone": {"name": None},
        "unknown": {"min": 1, "atleast": 2},
    }
    offers = {"hardware": {"gpu_memory_gb": 16, "ok": 1}, "models": ["x"], "cores": 16, "unknown": 3}
    assert lacks(requires, offers) == (
        Lack("hardware.gpu_memory_gb", 24, 16),
        Lack("hardware.gpu_model", "A100", None),
        Lack("models", "y", ["x"]),
        Lack("models", "z", ["x"]),
        Lack("cores", {"max": 8}, 16),
        Lack("cores", {"not": 6}, 16),
        Lack("zone", {"name": None}, None),
        Lack("unknown", {"min": 1, "atleast": 2}, 3),
    )


@pytest.mark.parametrize(
    ("need", "words"),
    [
        (24, "≥ 24"),
        (1.5, "≥ 1.5"),
        ("a", "= 'a'"),
        (True, "= true"),
        (None, "= none"),
        ({"min": 2}, "≥ 2"),
        ({"max": 2}, "≤ 2"),
        ({"in": ["a", "all"]}, "= 'a'"),
        ({"in": ["a", None]}, "= 'a'"),
        ({"in": ["a", "b"]}, "= 'a' or 'b'"),
        ({"in": ["all"]}, "= 'all'"),
        ({"in": [8, "any"]}, "≥ 8 or = 'any'"),
        ({"not": "a"}, "≠ 'a'"),
        ({"not": 24}, "< 24"),
        ({"not": {"min": 3}}, "not ≥ 3"),
        ({"not": {"in": ["a", "b"]}}, "not = 'a' or 'b'"),
        ({"not": {"in": [{"gpu": "a"}]}}, "not gpu = 'a'"),
        ({"gpu": "a", "n": 2}, "gpu = 'a' and n ≥ 2"),
        ({"min": 1, "atleast": 2}, '= {"min":1,"atleast":2}'),
        ("x" * 200, f"= '{'x' * 77} …"),
    ],
)
def test_needs_in_words(need: Any, words: str) -> None:
    assert told_need(need) == words


@pytest.mark.parametrize(
    ("offer", "words", "discreet"),
    [
        (None, "none", "none"),
        (16, "16", "16"),
        ("a", "'a'", "something else"),
        (["a", "b"], "'a', 'b'", "something else"),
        ([], "none", "something else"),
        ({"a": 1}, '{"a":1}', "something else"),
        (True, "true", "something else"),
    ],
)
def test_offers_in_words(offer: Any, words: str, discreet: str) -> None:
    assert told_offer(offer) == words
    assert told_offer(offer, discreet=True) == discreet


HUGE = 10**400
"""What a store may hold from before numbers were bounded."""


@pytest.mark.parametrize(
    ("need", "offer"), [(HUGE, 1), (HUGE, 0.5), ({"max": -HUGE}, 1e308), ({"min": 1e308}, -1e308), ([HUGE], HUGE - 1)]
)
def test_a_number_of_any_size_is_told(need: Any, offer: Any) -> None:
    found = lacks({"a": need}, {"a": offer})
    assert 0.0 <= distance(found)[1] <= 1.0
    assert all(len(text) < 200 for text in told_lacks(found))
