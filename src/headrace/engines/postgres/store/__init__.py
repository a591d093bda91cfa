"""The database: pool, drivers, schema, presence of sessions, checks. Begin with ``pool`` and ``connection``. Imports:
``engines.sql``.
"""
