"""Writes to a store, many in one commit.

Begin with ``writer`` (what a session writes with) and ``batcher`` (group commit). ``inserts`` stores new jobs,
``decision`` decides again when a job moved, ``notes`` processes what a change left to do, ``hints`` notifies readers.
May import ``runtime``.
"""
