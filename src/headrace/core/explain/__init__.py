"""Explanations: why a job is running, is not, or never will; why a worker gets no job.

Begin with ``job`` and ``worker``. ``position`` says how many jobs are before one. May import ``core``.
"""
