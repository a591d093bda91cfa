"""Explanations: why a job is running, is not, or never will; why a worker gets no job.

Begin with ``job`` and ``worker``. ``position`` counts the jobs before one. May import ``core``.
"""
