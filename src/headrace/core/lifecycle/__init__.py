"""What may happen to a job, as pure decisions.

Begin with ``transitions`` (the table) and ``decision`` (what every decision is made of). ``submission`` and
``execution`` decide for programs and workers, ``actions`` for people, ``loss``, ``liveness`` and ``sweep`` when a
worker is gone. May import ``core``.
"""
