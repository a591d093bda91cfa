"""Every interleaving of two workers and two jobs on the memory engine: a small model, explored breadth first.

Begin with ``search``: it takes every one of ``steps`` from every ``world``, and checks ``invariants`` after each.
``form`` says when two worlds are the same, ``scenes`` what is in a store at the beginning. ``python -m
headrace.testing.exhaustive`` runs it. May import ``engines.memory``, ``runtime`` and below.
"""
