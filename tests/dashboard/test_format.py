"""Numbers, lengths of time and moments as they are written on the pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from headrace.dashboard.format import age, at, count, length, percent, short, size, timed

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.0004, "0.4 ms"),
        (0.05, "50 ms"),
        (0.5, "0.5 s"),
        (9.9, "9.9 s"),
        (9.96, "10 s"),
        (59, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3599, "59 min 59 s"),
        (7260, "2 h 1 min"),
        (86400 * 3 + 3600, "3 d 1 h"),
        (timedelta(days=400), "400 d"),
        (-5, "0 ms"),
    ],
)
def test_a_length_of_time_has_its_two_largest_units(seconds: float | None, text: str) -> None:
    assert length(seconds) == text


def test_almost_all_is_not_all() -> None:
    assert [percent(one) for one in (None, 0.0, 0.00001, 0.5, 0.99999, 1.0)] == [
        "–",
        "0%",
        "0.1%",
        "50%",
        "99.9%",
        "100%",
    ]


def test_numbers_and_sizes() -> None:
    assert [count(one) for one in (0, 1.5, 3.0, 12.6, 1234567)] == ["0", "1.5", "3", "13", "1,234,567"]
    assert [size(one) for one in (None, 10, 2048, 57 << 20, 3 << 30)] == ["–", "10 B", "2 KiB", "57 MiB", "3.0 GiB"]
    assert short("01a1e75f-cc1a-7000-a209-d3c32e526b5c") == "2e526b5c"


def test_a_moment_is_shown_in_utc_and_told_exactly() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert str(at(there)) == (
        '<time datetime="2026-03-01T12:00:00.000Z" data-as="at" title="2026-03-01 12:00:00.000 UTC">'
        "2026-03-01 12:00:00 UTC</time>"
    )
    assert at(None) == "–"


def test_an_age_goes_either_way_and_stands_still_where_pages_are_compared() -> None:
    assert ">5 s ago<" in age(NOON - timedelta(seconds=5.7), NOON, ago=True)
    assert ">in 1 min 30 s<" in age(NOON + timedelta(seconds=90), NOON)
    still = age(NOON, None)
    assert "2026-03-01 12:00:00.000 UTC</time>" in still


def test_moments_in_sentences_are_shown_like_all_others_and_the_rest_is_escaped() -> None:
    shown = timed("It <b>failed</b> at 2026-03-01 13:00:00+01:00: 9999-99-99 00:00:00+00:00 is none.")
    assert "It &lt;b&gt;failed&lt;/b&gt; at <time " in shown
    assert 'title="2026-03-01 12:00:00.000 UTC">2026-03-01 12:00:00 UTC</time>: 9999-99-99' in shown
    assert timed("0001-01-01 00:00:00+23:00") == "0001-01-01 00:00:00+23:00"
    assert timed("No moment.") == "No moment."
