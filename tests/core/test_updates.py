from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.core.attempt import Attempt, Event, History
from headrace.core.entry import BEGIN
from headrace.core.status import Outcome
from headrace.core.updates import Place, ResumeToken, happened_since

NOW = datetime(2026, 1, 31, 8, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    "mark", [ResumeToken(1, NOW), ResumeToken(7, NOW, (2, 0), (3, 12)), ResumeToken(10**15, NOW, BEGIN, (1, 10**12))]
)
def test_a_mark_is_read_as_it_was_written(mark: ResumeToken) -> None:
    assert ResumeToken.read(str(mark)) == mark


@pytest.mark.parametrize(
    "text", ["", "7", "7-1", "7-1-1.1", "-7-1-1.1-1.1", "7-1-1.1-1.1 ", "٧-1-1.1-1.1", "7-1-1.1-1.1-1", "9" * 5000]
)
def test_what_is_no_mark_is_none(text: str) -> None:
    assert ResumeToken.read(text) is None


def test_the_history_since_a_mark_is_what_came_later() -> None:
    moments = [NOW + timedelta(seconds=n) for n in range(3)]
    history = History(
        tuple(Attempt(number=n, epoch=n, outcome=Outcome.FAILED, finished_at=at) for n, at in enumerate(moments, 1)),
        tuple(Event("retry", at) for at in moments),
    )
    since = happened_since(history, ResumeToken(3, moments[1]))
    assert [one.number for one in since.attempts] == [3]
    assert [one.at for one in since.events] == [moments[2]]


def test_another_estimate_is_no_other_place() -> None:
    assert Place(3, NOW).like(Place(3, NOW + timedelta(seconds=1)))
    assert not Place(3, NOW).like(Place(2, NOW))
    assert not Place(3, NOW).like(Place(3))
