"""Find, count and failures as SQL.

Begin with ``finder``, which runs a search. ``conditions`` and ``candidates`` write it, ``dialect`` has what differs
between the databases. May import ``engines.sql`` and ``core``.
"""
