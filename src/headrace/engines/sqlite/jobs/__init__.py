"""The role ``jobs`` on SQLite, a file per verb. Begin with ``role``. ``subqueues`` interns queue, task and
requirements. Imports: ``engines.sql``, ``engines.sqlite.store``.
"""
