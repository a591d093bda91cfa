"""What holds for all tests."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.support.seed import pytest_configure, pytest_report_header

__all__ = ["pytest_configure", "pytest_report_header"]

# How long an example takes says how busy the machine is, and nothing else.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# In the background of a script interrupts are ignored, and whatever a process starts inherits that. An answer to them
# is not inherited, even one that does nothing: the tests go on ignoring interrupts, what they start does not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda number, frame: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the tests that take long, and mostly wait, among all others: at no time do they keep every process. None
    of them is among the last, where the other processes would have nothing left to do."""
    long = [item for item in items if {"crash", "model"} & set(item.path.parts)]
    others = [item for item in items if item not in set(long)]
    if not long or not others:
        return
    step = max(len(others) * 3 // 4 // len(long), 1)
    items[:] = []
    for place in range(0, len(others), step):
        items += long[place // step : place // step + 1] + others[place : place + step]
    items += long[-(-len(others) // step) :]
