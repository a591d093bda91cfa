"""Alerts: what is wrong in a store, each with its remedy: one list for ``doctor``, pages, HTTP and metrics.

Begin with ``alert``, which has all kinds; the other modules decide when there is one. May import ``core``.
"""
