"""The pytest plugin, found by its entry point; it brings the fixture ``headrace_harness``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.testing.app_harness import Harness, harness

__all__ = ["headrace_harness"]


@pytest.fixture
def headrace_harness() -> Callable[..., Harness]:
    """Return a function that makes a harness: ``async with headrace_harness(app) as h``; its arguments are those of
    ``headrace.testing.harness``."""
    return harness
