"""Lines and profiles: interned once, remembered by each session, collected only when there are too many."""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from headrace.core.claim import Ask
from headrace.engine import MAX_PROFILES
from headrace.engines.record import Place, encode
from headrace.engines.sqlite.connection import ask as statement

__all__ = ["Served", "intern"]


def intern(connection: apsw.Connection, places: Iterable[Place]) -> tuple[int, dict[Place, int | None]]:
    """The lines of these places, made where missing, in a commit of their own (None: one profile too many).

    Also the count of collections at which these lines are good.
    """
    connection.execute("BEGIN IMMEDIATE")
    lines = {place: _line(connection, *place) for place in places}
    collected: int = connection.execute("SELECT collected FROM books").get
    connection.execute("COMMIT")
    return collected, lines


def _line(connection: apsw.Connection, queue: str, task: str, requires: str) -> int | None:
    profile = _profile(connection, task, requires)
    if profile is None:
        return None
    line: int | None = connection.execute("SELECT id FROM lines WHERE queue = ? AND profile = ?", (queue, profile)).get
    if line is None:
        insert = "INSERT INTO lines (queue, profile) VALUES (?, ?) RETURNING id"
        line = connection.execute(insert, (queue, profile)).get
        connection.execute("UPDATE books SET lines_rev = lines_rev + 1")
    return line


def _profile(connection: apsw.Connection, task: str, requires: str) -> int | None:
    select = "SELECT id FROM profiles WHERE task = ? AND requires = ? AND live"
    profile: int | None = connection.execute(select, (task, requires)).get
    if profile is None and _room(connection):
        insert = (
            "INSERT INTO profiles (task, requires, live) VALUES (?, ?, 1)"
            " ON CONFLICT (task, requires) DO UPDATE SET live = 1 RETURNING id"
        )
        profile = connection.execute(insert, (task, requires)).get
        connection.execute("UPDATE books SET profiles_rev = profiles_rev + 1")
    return profile


def _room(connection: apsw.Connection) -> bool:
    count = "SELECT count(*) < ? FROM profiles WHERE live"
    if connection.execute(count, (MAX_PROFILES,)).get:
        return True
    # Looks at every job: done only when there is no other way.
    connection.execute(statement("collect"))
    return bool(connection.execute(count, (MAX_PROFILES,)).get)


class Served:
    """Which lines each ask of this session serves, kept beside the connection for claims to hop over."""

    _KEPT = 64

    def __init__(self) -> None:
        self._asks: dict[tuple[frozenset[int], tuple[str, ...] | None], tuple[int, int]] = {}

    def of(self, connection: apsw.Connection, ask: Ask, lines_rev: int | None = None) -> tuple[int, int]:
        """The ask's number and the rev of the lines it was made from; made anew if that is not ``lines_rev``."""
        key = (ask.profiles, ask.queues)
        known = self._asks.get(key)
        if known is not None and lines_rev in (None, known[1]):
            return known
        if known is None and len(self._asks) >= self._KEPT:
            connection.execute("DELETE FROM served")
            self._asks.clear()
        # The rev first: a line that is added in between makes the next claim look again.
        rev: int = connection.execute("SELECT lines_rev FROM books").get
        number = len(self._asks) if known is None else known[0]
        queues = None if ask.queues is None else encode(ask.queues)
        connection.execute("DELETE FROM served WHERE ask = ?", (number,))
        connection.execute(statement("serve"), (number, encode(sorted(ask.profiles)), queues))
        self._asks[key] = (number, rev)
        return self._asks[key]
