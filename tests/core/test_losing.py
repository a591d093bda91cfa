"""What is said of a job that was taken from its worker."""

from __future__ import annotations

from datetime import datetime

import pytest

from headrace.core.lifecycle import lose
from headrace.core.status import Cause, Status
from tests.core.stand import NOW, RULES, at, given, running, stand, submitted


@pytest.mark.parametrize(("seconds", "words"), [(31, "31 s"), (4 * 60, "4 min"), (8 * 3600, "8 h")])
@pytest.mark.parametrize("status", [Status.ACCEPTED, Status.RUNNING])
def test_the_burial_says_how_long_the_worker_was_silent(status: Status, seconds: float, words: str) -> None:
    decided = lose(stand(status), Cause.LEASE, at(seconds), 0.5, RULES, heard_at=NOW)
    assert decided.attempt is not None
    assert decided.attempt.error is not None
    assert decided.attempt.error.message == f"the worker is dead: it was silent for {words}"
    assert decided.attempt.error.details == {"last_heard_at": "2030-05-06T07:08:09.123456Z", "silent_seconds": seconds}
    assert decided.job.error == (decided.attempt.error if status is Status.RUNNING else None)


@pytest.mark.parametrize("heard_at", [None, NOW])
def test_other_losses_are_no_silence(heard_at: datetime | None) -> None:
    for cause in set(Cause) - {Cause.LEASE}:
        decided = lose(running(), cause, at(RULES.lease - 1), 0.5, RULES, heard_at=heard_at)
        assert decided.job.error is not None
        assert "silent" not in decided.job.error.message
        assert decided.job.error.details is None


def test_a_worker_nobody_knows_of_was_silent_for_nobody_knows_how_long() -> None:
    decided = lose(given(submitted()), Cause.LEASE, at(60), 0.5, RULES)
    assert decided.attempt is not None
    assert decided.attempt.error is not None
    assert decided.attempt.error.message == "the worker is dead"


def test_who_missed_a_deadline_by_its_silence_was_silent() -> None:
    decided = lose(given(submitted()), Cause.START_BY, at(120), 0.5, RULES, heard_at=NOW)
    assert decided.attempt is not None
    assert decided.attempt.error is not None
    assert decided.attempt.error.message == "the worker did not start in time: it was silent for 2 min"
