"""Which worker may run which job.

Begin with ``match``, which compares what a job requires with what a worker offers. ``fit`` chooses among several
workers, ``shortfall`` lists what is missing. May import ``core``.
"""
