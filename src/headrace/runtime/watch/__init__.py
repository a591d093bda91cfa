"""Waiting for jobs, and reading what they add.

Begin with ``watcher`` (wait for a job). ``followers`` is one reading for many readers, ``feed`` gives changes of many
jobs, ``stream`` and ``entries`` give items and log lines. May import ``runtime``.
"""
