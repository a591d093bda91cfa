"""Numbers and moments in words a person would use."""

from __future__ import annotations

import pytest

from headrace.core.explain.explanation import Explanation, Fact, many, per_time, roughly


def test_an_explanation_is_its_facts() -> None:
    made = Explanation([Fact("one", "It is so."), Fact("two", "And so.", {"n": 1})])
    assert (str(made), made.codes, made.facts[1].data) == ("It is so. And so.", ("one", "two"), {"n": 1})


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "1 s"),
        (0.4, "1 s"),
        (7.2, "7 s"),
        (41.2, "40 s"),
        (43, "45 s"),
        (118, "2 min"),
        (150, "2 min"),
        (3 * 3600 + 100, "3 h"),
        (9 * 86400, "9 d"),
    ],
)
def test_a_guess_is_not_exact(seconds: float, words: str) -> None:
    assert roughly(seconds) == words


@pytest.mark.parametrize(
    ("per_second", "words"),
    [
        (12.3, "12 jobs a second"),
        (1.0, "1 job a second"),
        (2.5, "2.5 jobs a second"),
        (9.97, "10 jobs a second"),
        (12345.6, "12,346 jobs a second"),
        (0.5, "30 jobs a minute"),
        (1 / 60, "1 job a minute"),
        (1 / 300, "12 jobs an hour"),
    ],
)
def test_a_pace(per_second: float, words: str) -> None:
    assert per_time(per_second) == words


def test_so_many() -> None:
    assert [many(n, "job") for n in (0, 1, 2, 10_000)] == ["0 jobs", "1 job", "2 jobs", "10,000 jobs"]
