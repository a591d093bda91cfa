"""Concurrency and rate limits of queues, tasks and keys.

Begin with ``settings`` (what is set) and ``selection`` (which jobs a claim gives then). ``rate`` counts permits,
``profiles`` bounds how many kinds of jobs there are. May import ``core``.
"""
