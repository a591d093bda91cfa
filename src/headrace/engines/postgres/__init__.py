"""PostgreSQL: jobs in one schema of a database, for any number of workers, submitters and hosts."""

from headrace.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
