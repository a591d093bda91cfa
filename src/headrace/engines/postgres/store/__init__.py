"""The database: pools of connections, users' drivers, schema, presence of sessions, checks.

Begin with ``pool`` and ``connection``. May import ``engines.sql``.
"""
