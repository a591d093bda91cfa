"""Numbers about jobs that have ended: histograms, rollups, charts, groups of failures, utilisation, and the invariants
that ``headrace verify`` checks. Imports: ``core``.
"""
