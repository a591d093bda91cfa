"""A worker: claims jobs, runs their handlers, writes how they ended, and beats on a thread of its own.

Begin with ``worker``, then ``slots`` (the jobs it owns) and ``owned_job`` (the one writer about a job). ``claim``,
``execution`` and ``process`` have the rest. May import ``logs``, ``runtime`` and below, never ``engines``.
"""
