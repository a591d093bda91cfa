"""Values and decisions, as pure functions: no I/O, no clock, no randomness, no asyncio.

Begin with ``job`` (the record), ``change`` (a decision as a value) and ``lifecycle`` (what may happen to a job). May
import ``errors``.
"""
