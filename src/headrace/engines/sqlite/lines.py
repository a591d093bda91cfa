"""Lines and profiles: interned once, remembered by each session, collected only when there are too many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw
import msgspec

from headrace.core.change import Change
from headrace.core.claim import Ask
from headrace.engine import MAX_PROFILES
from headrace.engine.statements import Statement, Statements
from headrace.engines.refusing import refuse_text, too_many
from headrace.engines.sql.lines import Interned, KnownLines
from headrace.engines.sql.record import Place, encode, place_of, rank_of
from headrace.engines.sqlite.connection import ask as statement
from headrace.engines.sqlite.connection import drive
from headrace.engines.sqlite.db_thread import DbThread

__all__ = ["Lines", "Served", "interning", "moving"]


class Lines(KnownLines):
    """The lines that a session knows."""

    def __init__(self, writer: DbThread) -> None:
        super().__init__()
        self._writer = writer

    async def _intern(self, places: list[Place], *, limited: bool) -> Interned:
        def write(connection: apsw.Connection) -> Interned:
            connection.execute("BEGIN IMMEDIATE")
            lines = drive(connection, interning(places, limited=limited))
            collected: int = connection.execute("SELECT collected FROM books").get
            connection.execute("COMMIT")
            found = {place: line for place, line in lines.items() if line is not None}
            return found, {place: too_many() for place in lines.keys() - found.keys()}, collected

        return await self._writer.run(write)


def interning(places: Iterable[Place], *, limited: bool = True) -> Statements[dict[Place, int | None]]:
    """The lines of these places, made where missing, as statements for a transaction that is open.

    None in place of one that would need a profile too many, if they are ``limited``.
    """
    lines = dict[Place, int | None]()
    for place in places:
        lines[place] = yield from _line(place, limited)
    return lines


def moving(changes: Sequence[Change]) -> Statements[None]:
    """Put the jobs of these changes where they stand after them, for the transaction that applies them next.

    The limit of profiles does not hold here: the jobs are stored already.
    """
    refuse_text(*(change.job.moved_to for change in changes))
    lines = yield from interning({place_of(change.job) for change in changes}, limited=False)
    rows = [(change.job.seq, change.rev, lines[place_of(change.job)], rank_of(change.job)) for change in changes]
    document = encode(rows)
    # First out of line, where that is: the head of a key follows when its first job leaves or comes.
    yield Statement(statement("step_out"), document)
    yield Statement(statement("move"), document)


_ADD_LINE = "INSERT INTO lines (queue, profile) VALUES ($1 ->> 0, $1 ->> 1) RETURNING id"
_ROOM = "SELECT count(*) < $1 ->> 0 FROM profiles WHERE live"

_found = msgspec.json.Decoder(tuple[int, int | None]).decode


def _line(place: Place, limited: bool) -> Statements[int | None]:
    document = encode(place)
    found = yield Statement(statement("find_line"), document)
    profile, line = _found(found) if found else (None, None)
    if profile is None:
        if limited and not (yield from _room()):
            return None
        profile = int((yield Statement(statement("add_profile"), document)))
        yield Statement("UPDATE books SET profiles_rev = profiles_rev + 1", "")
        found = yield Statement(statement("find_line"), document)
        _, line = _found(found)
    if line is None:
        line = int((yield Statement(_ADD_LINE, encode((place[0], profile)))))
        yield Statement("UPDATE books SET lines_rev = lines_rev + 1", "")
    return line


def _room() -> Statements[bool]:
    room = encode((MAX_PROFILES,))
    if (yield Statement(_ROOM, room)) == "1":
        return True
    # This looks at every job, so it is done only when there is no room left.
    yield Statement(statement("collect"), "")
    return (yield Statement(_ROOM, room)) == "1"


class Served:
    """The lines that each ask of this session serves, kept in a temporary table for claims to read."""

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
        # The rev is read first, so that a line that is added in between makes the next claim look again.
        rev: int = connection.execute("SELECT lines_rev FROM books").get
        number = len(self._asks) if known is None else known[0]
        queues = None if ask.queues is None else encode(ask.queues)
        connection.execute("DELETE FROM served WHERE ask = ?", (number,))
        connection.execute(statement("serve"), (number, encode(sorted(ask.profiles)), queues))
        self._asks[key] = (number, rev)
        return self._asks[key]
