"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.support.seed import pytest_configure, pytest_report_header

__all__ = ["pytest_configure", "pytest_report_header"]

# How long an example takes says how busy the machine is, and nothing else.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
