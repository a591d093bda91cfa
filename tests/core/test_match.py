"""Whether an offer meets a requirement."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.match import Profile, meets, mismatch, serves


@pytest.mark.parametrize(
    ("need", "offer", "met"),
    [
        (True, True, True),
        (True, None, False),
        ("eu", "eu", True),
        ("eu", "us", False),
        ("eu", ["us", "eu"], True),
        ("eu", ("us",), False),
        ("eu", {"eu"}, True),
        (["a"], [["a"], "b"], True),
        (["a"], {"a"}, False),
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


def test_the_first_requirement_not_met_is_named() -> None:
    offers = {"gpu": True, "memory": 8}
    assert mismatch({}, offers) is None
    assert mismatch({"gpu": True, "memory": {"min": 8}}, offers) is None
    assert mismatch({"gpu": True, "memory": {"min": 9}, "disk": 1}, offers) == "memory"
    assert mismatch({"disk": 1}, {}) == "disk"


def test_a_worker_serves_profiles_of_its_tasks_that_it_meets() -> None:
    profile = Profile(1, "resize", {"gpu": True})
    assert serves(profile, frozenset({"resize", "x"}), {"gpu": True})
    assert not serves(profile, frozenset({"x"}), {"gpu": True})
    assert not serves(profile, frozenset({"resize"}), {})
