"""A database on a server whose clock a test can set."""

from __future__ import annotations

from tests.support.servers.postgres import Server


class ServerClock:
    """The clock of a new database: a function of that name, in front of the one that reads the server's."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.database = server.create_database()
        reads = "SELECT pg_catalog.clock_timestamp() + off * interval '1 s' FROM fake.clock"
        for statement in (
            "CREATE SCHEMA fake",
            "CREATE TABLE fake.clock AS SELECT 0.0::float8 AS off",
            f"CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $body$ {reads} $body$",
            f'ALTER DATABASE "{self.database}" SET search_path = fake, pg_catalog, public',
        ):
            server.execute(statement, self.database)

    @property
    def url(self) -> str:
        """The address of the database."""
        return self._server.url(self.database)

    def set(self, seconds: float) -> None:
        """Set the clock forward or (negative) back."""
        self._server.execute(f"UPDATE fake.clock SET off = off + {seconds}", self.database)
