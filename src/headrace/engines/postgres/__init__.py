"""PostgreSQL: jobs in one schema of a database, for any number of workers, submitters and hosts.

Begin with ``engine``. There is a module or package per role, and a file in the folder ``sql`` per statement. May import
``engines.sql``, ``runtime`` and below.
"""

from headrace.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
