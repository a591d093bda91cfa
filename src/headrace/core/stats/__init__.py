"""Numbers about jobs that have ended, and the invariants that ``headrace verify`` checks.

Begin with ``rollup``, from which ``charts`` are made. ``failures`` groups errors. May import ``core``.
"""
