"""The role ``jobs`` on SQLite, a module per verb.

Begin with ``role``. ``subqueues`` numbers queue, task and requirements; ``columns`` and ``rows`` say how a job is
stored. May import ``engines.sql`` and ``engines.sqlite.store``.
"""
