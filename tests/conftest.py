"""What holds for all tests."""

from __future__ import annotations

import signal

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
