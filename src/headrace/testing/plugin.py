"""The pytest plugin, found by its entry point; it brings the fixture ``headrace_harness``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing.rig import Harness

__all__ = ["headrace_harness"]


@pytest.fixture
def headrace_harness() -> Callable[..., Harness]:
    """Makes a harness: ``async with headrace_harness(app) as h``; takes what ``headrace.testing.harness`` takes."""
    # Here, not above: pytest loads the plugin in every run, also in those that never use headrace.
    from headrace.testing.rig import harness

    return harness
