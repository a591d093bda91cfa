"""The reference engine: the contract in plain Python, kept in memory; what every other engine is compared with."""

from headrace.engines.memory.engine import MemoryEngine

__all__ = ["MemoryEngine"]
