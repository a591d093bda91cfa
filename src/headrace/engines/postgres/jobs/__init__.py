"""The role ``jobs`` on PostgreSQL, a file per verb. Begin with ``role``. ``subqueues`` interns queue, task and
requirements. Imports: ``engines.sql``, ``engines.postgres.store``.
"""
