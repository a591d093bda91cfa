"""For the tests of programs that use headrace: their own app on a memory store, under a clock they move by hand."""

from headrace.testing.clock import FakeClock
from headrace.testing.rig import Harness, harness

__all__ = ["FakeClock", "Harness", "harness"]
