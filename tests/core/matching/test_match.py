"""Whether an offer meets a requirement."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.matching.match import Profile, fault_of, fault_of_numbers, meets, serves
from headrace.errors import shown


@pytest.mark.parametrize(
    ("need", "offer", "met"),
    [
        (None, None, True),
        (True, True, True),
        (True, None, False),
        ("eu", "eu", True),
        ("eu", "us", False),
        ("eu", ["us", "eu"], True),
        ("eu", ("us",), False),
        ("eu", {"eu"}, True),
        (["a"], [["a"], "b"], True),
        (["a"], {"a"}, True),
        (["a", "b"], ["b", "c", "a"], True),
        (["a", "b"], ["a"], False),
        (["a"], "a", True),
        ([], None, True),
        ([4, "eu"], [8, "eu"], True),
        (24, 24, True),
        (24, 48, True),
        (24, 16, False),
        (24, None, False),
        (24, "48", False),
        (24, [8, 32], True),
        (24, True, False),
        ({"gpu_memory_gb": 24}, {"gpu_memory_gb": 48, "gpus": 1}, True),
        ({"gpu_memory_gb": 24}, {"gpu_memory_gb": 16}, False),
        ({"gpu_memory_gb": 24}, {}, False),
        ({"gpu_memory_gb": 24}, 48, False),
        ({"gpu": {"memory": 24, "kind": "a"}}, {"gpu": {"memory": 24, "kind": "a"}}, True),
        ({"gpu": {"memory": {"max": 24}}}, {"gpu": {"memory": 25}}, False),
        ({"memory": 24}, [{"memory": 8}, {"memory": 32}], True),
        ({"memory": 24, "kind": "a"}, [{"memory": 8, "kind": "a"}, {"memory": 32}], False),
        ({"min": 4}, 4, True),
        ({"min": 4}, 3.9, False),
        ({"min": 4}, None, False),
        ({"min": 4}, "8", False),
        ({"min": "4"}, 8, False),
        ({"max": 4}, 4, True),
        ({"max": 4}, 5, False),
        ({"max": None}, 5, False),
        ({"min": 2, "max": 4}, 3, True),
        ({"min": 2, "max": 4}, 5, False),
        ({"in": ["eu", "us"]}, "us", True),
        ({"in": ["eu", "us"]}, ["asia", "us"], True),
        ({"in": ["eu", "us"]}, "asia", False),
        ({"in": "eu"}, "e", False),
        ({"in": 5}, 5, False),
        ({"in": [{"min": 4}, "any"]}, 5, True),
        ({"not": "windows"}, "linux", True),
        ({"not": "windows"}, "windows", False),
        ({"not": "windows"}, None, True),
        ({"not": {"in": ["a", "b"]}}, "b", False),
        ({"atleast": 4}, 8, False),
        ({"min": 1, "atleast": 4}, 8, False),
        ({}, None, True),
    ],
)
def test_a_need_and_an_offer(need: Any, offer: Any, met: bool) -> None:
    assert meets({"thing": need}, {"thing": offer}) is met


def test_a_worker_serves_profiles_of_its_tasks_that_it_meets() -> None:
    profile = Profile(1, "resize", {"gpu": True})
    assert serves(profile, frozenset({"resize", "x"}), {"gpu": True})
    assert not serves(profile, frozenset({"x"}), {"gpu": True})
    assert not serves(profile, frozenset({"resize"}), {})


def test_what_is_nested_too_deep_is_met_by_nobody() -> None:
    need: Any = "a"
    for _ in range(10_000):
        need = {"not": need}
    assert not meets({"thing": need}, {"thing": "a"})


WORD = st.sampled_from(["a", "b", "c"])
SCALAR = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | WORD
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3), max_leaves=6
)
NEED = st.recursive(
    SCALAR | st.fixed_dictionaries({"min": st.integers(-5, 5)}) | st.fixed_dictionaries({"max": st.integers(-5, 5)}),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORD, inner, max_size=3)
        | st.fixed_dictionaries({"in": st.lists(inner, max_size=3)})
        | st.fixed_dictionaries({"not": inner})
    ),
    max_leaves=6,
)


@given(VALUE)
def test_everything_meets_itself(value: Any) -> None:
    assert meets({"thing": value}, {"thing": value})


@given(NEED, VALUE)
def test_not_is_the_contrary(need: Any, offer: Any) -> None:
    assert meets({"thing": {"not": need}}, {"thing": offer}) is not meets({"thing": need}, {"thing": offer})


@given(st.lists(NEED, max_size=4), VALUE)
def test_a_list_asks_for_all_and_in_for_one(needs: list[Any], offer: Any) -> None:
    met = [meets({"thing": need}, {"thing": offer}) for need in needs]
    assert meets({"thing": needs}, {"thing": offer}) is all(met)
    assert meets({"thing": {"in": needs}}, {"thing": offer}) is any(met)


@given(st.dictionaries(WORD, st.integers(-5, 5), max_size=3), st.dictionaries(WORD, st.integers(-5, 5), max_size=3))
def test_who_offers_more_meets_as_much(need: dict[str, int], offer: dict[str, int]) -> None:
    if meets({"thing": need}, {"thing": offer}):
        assert meets({"thing": need}, {"thing": {name: n + 1 for name, n in offer.items()} | {"more": 1}})


@given(NEED, VALUE)
def test_what_is_offered_beside_others_meets_as_much(need: Any, offer: Any) -> None:
    scalar = not isinstance(need, dict | list) and not isinstance(offer, list) and need is not None
    if scalar and meets({"thing": need}, {"thing": offer}):
        assert meets({"thing": need}, {"thing": ["other", offer]})


@pytest.mark.parametrize(
    ("need", "fault"),
    [
        ({"min": "eu"}, "x: 'min' takes a number, not 'eu'"),
        ({"max": True}, "x: 'max' takes a number, not True"),
        ({"in": "eu"}, "x: 'in' takes a list of what will do, not 'eu'"),
        ({"in": []}, "x: 'in' takes a list of what will do, not []"),
        ({"not": {"in": 5}}, "x: 'in' takes a list of what will do, not 5"),
        ({"in": ["a", {"min": None}]}, "x: 'min' takes a number, not None"),
        ({"gpu": {"memory": {"min": "24"}}}, "x.gpu.memory: 'min' takes a number, not '24'"),
        ([{"max": "1"}], "x: 'max' takes a number, not '1'"),
        ({"min": 1, "most": 5}, "x: 'most' is no test, and stands among tests (in, max, min, not)"),
        ({"min": 5, "max": 1}, "x: no number is at least 5 and at most 1"),
        ({"min": 1, "max": 1.5}, None),
        ({"in": ["eu", 3, {"min": 1}]}, None),
        ({"not": "eu"}, None),
        ({"not": ["eu", "us"]}, None),
        ({"gpu": {"memory": 24, "kind": ["a", "b"]}}, None),
        ("eu", None),
        ({}, None),
    ],
)
def test_what_nobody_could_meet_is_a_fault(need: Any, fault: str | None) -> None:
    assert fault_of({"x": need}) == fault


def test_what_is_too_deep_is_a_fault() -> None:
    need: Any = 1
    for _ in range(40):
        need = {"a": need}
    assert fault_of({"x": need}) == "nobody looks deeper than 32 levels"


HUGE = int("9" * 400)
ODD = (HUGE, -HUGE, 10**6000, 2**53 + 1, float("inf"), float("nan"))


@pytest.mark.parametrize("number", ODD, ids=lambda one: f"{type(one).__name__} {shown(one)}")
@pytest.mark.parametrize("shape", ["{}", "min", "max", "not", "in", "list", "deep"])
def test_a_number_that_nobody_can_reckon_with_is_a_fault(shape: str, number: float) -> None:
    shapes = {"{}": number, "in": {"in": [number]}, "list": ["a", number], "deep": {"a": {"b": [{"not": number}]}}}
    fault = fault_of({"fine": 2**53, "x": shapes.get(shape, {shape: number})})
    assert fault is not None
    assert fault.startswith("x")
    assert str(2**53) in fault
    assert len(fault) < 300


@pytest.mark.parametrize("number", [2**53, -(2**53), 0, 1e308, -1e308, 5e-324, True])
def test_every_other_number_is_none(number: float) -> None:
    assert fault_of({"x": {"min": number}, "y": number, "z": [number]} if number is not True else {"x": True}) is None


def test_what_is_offered_may_be_as_deep_as_json() -> None:
    deep: Any = HUGE
    for _ in range(90):
        deep = [{"a": deep}]
    assert "from -9007199254740992" in str(fault_of_numbers({"x": deep}))
