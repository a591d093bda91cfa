"""Schedules: their rules, when they fire, and how they change.

Begin with ``rules`` and ``fires``. ``schedule`` is what a store keeps, ``localtime`` knows zones. May import ``core``.
"""
