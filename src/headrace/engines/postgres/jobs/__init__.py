"""The role ``jobs`` on PostgreSQL, a module per verb.

Begin with ``role``. ``subqueues`` numbers queue, task and requirements; ``columns`` and ``rows`` say how a job is
stored. May import ``engines.sql``, ``engines.postgres.store`` and ``engines.postgres.bus``.
"""
