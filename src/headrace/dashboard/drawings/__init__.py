"""Shapes that pages draw: charts, the graph of a family, the timeline of a job, JSON that folds.

Begin with ``charts``. May import ``core``.
"""
