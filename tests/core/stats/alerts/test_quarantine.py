"""When jobs count as in quarantine."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.core.lifecycle.retry import Retry
from headrace.core.stats.alerts.quarantine import quarantine_alerts
from tests.core.stand import submitted


@pytest.mark.parametrize(("losses", "charged", "found"), [(0, 0, 0), (1, 1, 0), (1, 3, 1), (2, 2, 1)])
def test_the_second_loss_and_the_last_attempt_are_told_of(losses: int, charged: int, found: int) -> None:
    job = replace(submitted(retry=Retry(3)), suspect=losses, charged=charged)
    told = list(quarantine_alerts([job], more=False))
    assert [(one.kind.check, one.level) for one in told] == [("quarantine", "warn")] * found
    assert all(one.message.startswith("1 job in quarantine") for one in told)


def test_there_may_be_more_than_were_counted() -> None:
    job = replace(submitted(retry=Retry(3)), suspect=2, charged=2)
    (told,) = quarantine_alerts([job], more=True)
    assert told.message.startswith("1 or more jobs in quarantine")
