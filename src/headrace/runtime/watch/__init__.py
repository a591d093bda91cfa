"""Waiting for jobs and reading what they add: ``watcher`` (wait for a job), ``followers`` (one reading for many),
``feed`` (changes of many jobs), ``stream`` and ``entries`` (items and log lines). Imports: ``engine``.
"""
