"""For the tests of programs that use headrace: their own app on a memory store, under a clock they move by hand.

Begin with ``app_harness``. May import ``app`` and below.
"""

from headrace.testing.app_harness import Harness, harness
from headrace.testing.clock import FakeClock
from headrace.testing.transactions import StoredAtOnce

__all__ = ["FakeClock", "Harness", "StoredAtOnce", "harness"]
