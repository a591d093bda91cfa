from __future__ import annotations

import pytest

from bench.figures import TARGETS, Figures


def _figures() -> Figures:
    figures = Figures()
    for rate in (30_000.0, 24_000.0):
        figures.add("drain", "headrace", rate)
    for rate in (4_000.0, 5_000.0):
        figures.add("drain", "huey", rate)
    figures.add("drain", "huey-off", 14_000.0)
    figures.add("drain4", "huey-off", 31_000.0)
    figures.add("p50", "headrace", 2.0)
    figures.add("p50", "headrace", 4.0)
    figures.add("p50", "huey", 50.0)
    return figures


def test_more_is_better_for_rates_and_less_for_times() -> None:
    figures = _figures()
    assert (figures.best("drain", "headrace"), figures.worst("drain", "headrace")) == (30_000.0, 24_000.0)
    assert (figures.best("p50", "headrace"), figures.worst("p50", "headrace")) == (2.0, 4.0)
    assert figures.best("bulk", "huey") is None


def test_a_ratio_says_how_many_times_better_headrace_is() -> None:
    figures = _figures()
    assert figures.ratio("drain", "huey") == 6.0
    assert figures.ratio("p50", "huey") == 25.0
    assert figures.ratio("p50", "raw") is None


@pytest.mark.parametrize(
    ("title", "met"),
    [
        ("drain", True),
        ("drain, against huey default", True),
        ("drain, against huey sync=OFF at its best", False),
        ("latency p50", True),
        ("bulk submit", None),
    ],
)
def test_a_target_is_met_or_missed_or_was_not_measured(title: str, met: bool | None) -> None:
    (target,) = [one for one in TARGETS["sqlite"] if one.title == title]
    assert target.verdict(_figures()) is met
