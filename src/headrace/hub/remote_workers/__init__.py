"""Workers in any language: the hub stands in for them at the store.

Begin with ``operations`` (the table of what a worker may say) and ``fleet`` (the workers behind this hub). ``claims``
gives jobs, ``held_job`` writes about one, ``heartbeats`` beats for all. May import ``hub.server``, ``hub.auth``,
``hub.api`` and what ``hub`` may.
"""
