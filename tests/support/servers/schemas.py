"""A schema of the shared PostgreSQL server for each place a test keeps its things in.

To create the tables takes the server longer than most tests do. So when a test is over, the schemas of its ``tmp_path``
are kept, and the next place that asks gets one of them, emptied and under the place's own name; an engine finds nothing
to migrate there. A test about a schema that is not there yet takes a name of its own, or ``schema_of`` without any of
the others, or a database of its own (``shared().create_database()``).
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import secrets
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg

from headrace.core.defaults import Rules
from headrace.engines.postgres import PostgresEngine
from headrace.runtime.host import Host
from tests.support.servers.postgres import OURS, apart, shared

MODEL = f"as_migrated_{secrets.token_hex(6)}"
"""The schema of this process that nobody uses, by which the others are made like new."""

_lent: dict[str, Path] = {}
"""Which place a schema was lent to."""

_kept: list[str] = []
"""Those that were given back, to be lent again."""


def schema_of(place: Path) -> str:
    """Its name: the same for the same place."""
    return f"at_{sha256(str(place).encode()).hexdigest()[:24]}"


def url_of(place: Path) -> str:
    """The URL an App takes."""
    return shared().url(schema=_lend(place))


def postgres_engine(rules: Rules, host: Host, place: Path) -> PostgresEngine:
    """An engine on the schema of a place, not yet open."""
    return PostgresEngine(shared().url(), rules=rules, host=host, schema=_lend(place))


def give_back(place: Path) -> None:
    """Keep the schemas of this place, and of those within it, for others. Called at the end of each test, for its
    ``tmp_path``; whoever makes other places may call it once nothing uses them any more."""
    for name, lent_to in list(_lent.items()):
        if lent_to.is_relative_to(place):
            del _lent[name]
            _kept.append(name)


def _lend(place: Path) -> str:
    """The name of the schema of this place. If one was to be had, it is there, and empty; if not, it is not there."""
    name = schema_of(place)
    if name in _kept:  # the place is asked for again, and still has what it had
        _kept.remove(name)
    elif name not in _lent:
        for _ in range(len(_kept)):
            used = _kept.pop(0)
            done = _renew(used, name)
            if done:
                break
            if done is None:
                _kept.append(used)
    _lent[name] = place
    return name


def _renew(used: str, name: str) -> bool | None:
    """Whether a used schema is as good as new now, under this name; None: it is still in use."""
    given = (used, name, MODEL, _shape())
    [answer] = _control().execute("SELECT pg_temp.renew(%s, %s, %s, %s)", given).fetchone() or [None]
    assert answer is None or isinstance(answer, bool)
    return answer


@functools.cache
def _shape() -> str:
    """What migrations have made of the model, which nothing changes."""
    [shape] = _control().execute("SELECT pg_temp.shape(%s)", (MODEL,)).fetchone() or [""]
    return str(shape)


@functools.cache
def _control() -> psycopg.Connection[tuple[Any, ...]]:
    """A connection that stays, in a database where one schema is as migrations leave it."""

    async def migrated() -> None:
        engine = PostgresEngine(shared().url(), rules=Rules(), host=Host(), schema=MODEL)
        await engine.open()
        await engine.close()

    apart(lambda: asyncio.run(migrated()))
    connection = psycopg.connect(shared().url(), autocommit=True, application_name=OURS)
    atexit.register(connection.close)
    connection.execute(Path(__file__).with_name("renew.sql").read_bytes())
    return connection
