"""Numbers about jobs that have ended, and the invariants that ``headrace verify`` checks.

Begin with ``rollup``, from which ``charts`` and ``metrics`` are made. ``failures`` groups errors. May import ``core``.
"""
