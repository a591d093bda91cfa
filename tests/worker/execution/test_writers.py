"""How often what a run reports is written."""

from __future__ import annotations

from headrace.core.attempt import Progress
from headrace.worker.execution.writers import ReportThrottle


def test_the_newest_report_is_written_and_the_next_a_moment_later() -> None:
    reports = ReportThrottle()
    for percent in (10, 20):
        reports.newest = Progress(percent)
    assert reports.wait(5.0) <= 0, "the first need not wait"
    assert reports.take(5.0) == Progress(20)
    assert reports.take(6.0) is None, "it is written once"
    reports.newest = Progress(30)
    assert reports.wait(5.0) == 0.25
    assert reports.wait(5.125) == 0.125
    assert reports.wait(5.25) == 0, "counted from the last that was written"
    assert reports.take(5.25) == Progress(30)
