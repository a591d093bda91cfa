"""Processes that commands run: workers, their supervisor, renewal, signals, health and logs.

Begin with ``worker`` (one process) and ``supervisor`` (several). May import ``worker``, ``contrib.prometheus`` and
other modules of ``cli``.
"""
