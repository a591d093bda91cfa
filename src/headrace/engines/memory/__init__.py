"""The reference engine: the contract in plain Python, kept in memory; every other engine is compared with it.

Begin with ``engine`` and ``state``; there is a module per role. May import ``engines.validation``, ``runtime`` and
below.
"""

from headrace.engines.memory.engine import MemoryEngine

__all__ = ["MemoryEngine"]
