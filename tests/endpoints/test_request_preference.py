"""What clients prefer."""

from __future__ import annotations

import pytest

from headrace.endpoints.request import Preference, preference_of


@pytest.mark.parametrize(
    ("headers", "wait", "respond_async"),
    [
        ([], None, False),
        (["wait=10"], 10, False),
        (['WAIT = "10" ; x=y'], 10, False),
        (["respond-async, wait=10"], 10, True),
        (["respond-async", "wait=10"], 10, True),
        (["wait=1, wait=2"], 1, False),
        (["handling=lenient; wait=3"], None, False),
        (["wait"], None, False),
        (["wait=-1"], None, False),
        (["wait=1.5"], None, False),
        (["wait=١"], None, False),
        ([f"wait={'9' * 5000}"], None, False),
        ([",,;=,"], None, False),
    ],
)
def test_what_is_said(headers: list[str], wait: int | None, respond_async: bool) -> None:
    assert preference_of(headers) == Preference(wait, respond_async)


def test_how_long_is_waited() -> None:
    assert Preference().seconds(2, 30) == 2
    assert Preference(5).seconds(2, 30) == 5
    assert Preference(50).seconds(2, 30) == 30
    assert Preference(0).seconds(2, 30) == 0
    assert Preference(None, True).seconds(2, 30) == 0
    assert Preference(5, True).seconds(2, 30) == 5, "RFC 7240: so long, before it is answered that it goes on"


def test_what_was_done_about_it_is_said() -> None:
    assert Preference().applied(30) == {}
    assert Preference(50).applied(30) == {"Preference-Applied": "wait=30"}
    assert Preference(5, True).applied(30) == {"Preference-Applied": "respond-async, wait=5"}
    assert Preference(None, True).applied(30) == {"Preference-Applied": "respond-async"}
