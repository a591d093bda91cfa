"""For the tests of programs that use headrace: their own app on a memory store, under a clock they move by hand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.clock import FakeClock
    from headrace.testing.rig import Harness, harness

__all__ = ["FakeClock", "Harness", "harness"]

_HOMES = {"FakeClock": "clock", "Harness": "rig", "harness": "rig"}


def __getattr__(name: str) -> Any:
    # pytest imports this package for its plugin in every run: the app is loaded only when a test asks for it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
