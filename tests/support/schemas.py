"""A schema of the shared PostgreSQL server for each place a test keeps its things in."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from headrace.core.defaults import Rules
from headrace.engines.postgres import PostgresEngine
from headrace.runtime.host import Host
from tests.support.postgres import shared


def schema_of(place: Path) -> str:
    """Its name: the same for the same place."""
    return f"at_{sha256(str(place).encode()).hexdigest()[:24]}"


def url_of(place: Path) -> str:
    """The URL an App takes."""
    return shared().url(schema=schema_of(place))


def postgres_engine(rules: Rules, host: Host, place: Path) -> PostgresEngine:
    """An engine on the schema of a place, not yet open."""
    return PostgresEngine(shared().url(), rules=rules, host=host, schema=schema_of(place))
