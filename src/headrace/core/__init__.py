"""The law as pure functions: no I/O, no clock, no randomness, no asyncio."""
