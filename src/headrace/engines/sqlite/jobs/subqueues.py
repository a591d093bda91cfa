"""Subqueues and profiles: interned once, remembered by each session, collected only when there are too many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import apsw
import msgspec

from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.limits.profiles import OURS, Pair, allowed, excess, no_room, refusal, room_for, staked_by
from headrace.core.limits.settings import limits_of
from headrace.engine.transactions import Statement, Statements
from headrace.engines.sql.encoding import Place, encode, pair_of, place_of, queues_by_customer, rank_of, requires_of
from headrace.engines.sql.subqueues import Interned, KnownSubqueues, Recounts, Spot, spot_of
from headrace.engines.sqlite.store.connection import ask as statement
from headrace.engines.sqlite.store.connection import drive
from headrace.engines.sqlite.store.thread import DbThread
from headrace.engines.validation import refuse_text
from headrace.errors import HeadraceError

__all__ = ["Limited", "Served", "Subqueues", "by_customer", "interning", "moving", "realigning", "reviving"]

Limited = tuple[Recounts, datetime]
"""What the limit of profiles is judged by: when customers may be recounted, and as of when their keys are valid."""


class Subqueues(KnownSubqueues):
    """The subqueues that a session knows."""

    def __init__(self, writer: DbThread, recounts: Recounts) -> None:
        super().__init__()
        self._writer, self._recounts = writer, recounts

    async def _intern(self, spots: list[Spot], now: datetime | None) -> Interned:
        limited = None if now is None else (self._recounts, now)

        def write(connection: apsw.Connection) -> Interned:
            found, refused = drive(connection, interning(spots, limited))
            return found, refused, connection.execute("SELECT collected FROM books").get

        return await self._writer.write(write)

    async def _queues(self) -> tuple[int, frozenset[str]]:
        def read(connection: apsw.Connection) -> tuple[int, frozenset[str]]:
            connection.execute("BEGIN")
            collected: int = connection.execute("SELECT collected FROM books").get
            queues = drive(connection, by_customer())
            connection.execute("COMMIT")
            return collected, queues

        return await self._writer.run(read)


def by_customer() -> Statements[frozenset[str]]:
    """Return the queues in which customers have subqueues of their own, as a statement for an open transaction."""
    return queues_by_customer(_settings((yield Statement(_QUEUES, ""))))


_QUEUES = "SELECT json_group_array(json_array(key, value)) FROM settings WHERE key >= 'queue:' AND key < 'queue;'"
_settings = msgspec.json.Decoder(list[tuple[str, str]]).decode


def interning(
    spots: Iterable[Spot], limited: Limited | None
) -> Statements[tuple[dict[Spot, int], dict[Spot, HeadraceError]]]:
    """Return the subqueues of these spots, made where missing, with the stakes of customers in them, as statements for
    an open transaction; and why some have none. ``limited`` None: none is refused for lack of a profile."""
    wanted = list(spots)
    refused = dict[Spot, HeadraceError]() if limited is None else (yield from _over(wanted, *limited))
    rest = [spot for spot in wanted if spot not in refused]
    subqueues, none = yield from _subqueues(rest, limited is not None)
    for_whom = None if any(whose is None for _, whose in none) else OURS
    if none and limited is not None and limited[0].may(for_whom):
        # This reads every job, so it is done only when there is no room left. It also removes what was just made, since
        # no job is in it yet: so all of them are made again, and nothing is collected after that.
        with limited[0].counting(for_whom):
            yield Statement(statement("collect"), "")
        subqueues, none = yield from _subqueues(rest, True)
    if stakes := [(whose, subqueue) for (_, whose), subqueue in subqueues.items() if whose]:
        yield Statement(statement("stake"), encode(stakes))
    return subqueues, refused | none


def _over(spots: Sequence[Spot], recounts: Recounts, now: datetime) -> Statements[dict[Spot, HeadraceError]]:
    """Return the spots that are refused because their customers would have live jobs of too many pairs."""
    refused = dict[Spot, HeadraceError]()
    for customer in dict.fromkeys(whose for _, whose in spots if whose):
        wanted = {spot: pair_of(spot[0]) for spot in spots if spot[1] == customer}
        has = yield from _pairs(customer)
        if has.issuperset(wanted.values()):
            continue
        most = allowed(customer, _texts((yield Statement(statement("key_profiles"), ""))), now)
        out = excess(has, wanted.values(), most)
        if out and recounts.may(customer):
            with recounts.counting(customer):
                yield Statement(statement("recount"), encode(customer))
            out = excess((yield from _pairs(customer)), wanted.values(), most)
        if out:
            why = refusal(customer, most)
            refused |= {spot: why for spot, pair in wanted.items() if pair in out}
    return refused


def _pairs(customer: str) -> Statements[set[Pair]]:
    """Return the pairs of task and requirements that a customer has a stake in."""
    return set(_as_pairs((yield Statement(statement("staked"), encode(customer)))))


def _subqueues(spots: Iterable[Spot], limited: bool) -> Statements[tuple[dict[Spot, int], dict[Spot, HeadraceError]]]:
    subqueues, none = dict[Spot, int](), dict[Spot, HeadraceError]()
    for place, whose in spots:
        subqueue = yield from _subqueue(place, (room_for(whose), whose is None) if limited else (None, False))
        if subqueue is None:
            none[place, whose] = no_room(whose)
        else:
            subqueues[place, whose] = subqueue
    return subqueues, none


def moving(changes: Sequence[Change]) -> Statements[None]:
    """Put the jobs of these changes into their new subqueues, for the transaction that applies them next.

    The limit of profiles does not apply here: the jobs are stored already.
    """
    refuse_text(*(change.job.moved_to for change in changes))
    yield from _move([(change.job, change.rev) for change in changes])


def reviving(change: Change, limited: Limited) -> Statements[HeadraceError | None]:
    """Put a retried job into its subqueue; or return why its customer may not have it retried."""
    whose = staked_by(change.job.spec)
    if whose:
        queues = yield from by_customer()
        _, none = yield from interning([(place_of(change.job, queues), whose)], limited)
        if none:
            return next(iter(none.values()))
    yield from moving([change])
    return None


def realigning(jobs: Sequence[Job]) -> Statements[None]:
    """Put queued jobs into the subqueues that they would have if they came now."""
    yield Statement(statement("step_in"), (yield from _move([(job, job.rev) for job in jobs])))


def _move(jobs: Sequence[tuple[Job, int]]) -> Statements[str]:
    """Move jobs, each if it is still at its rev; return what was moved where."""
    queues = yield from by_customer()
    spots = [spot_of(job, queues) for job, _ in jobs]
    subqueues, _ = yield from interning(dict.fromkeys(spots), None)
    found = zip(jobs, spots, strict=True)
    document = encode([(job.seq, rev, subqueues[spot], rank_of(job)) for (job, rev), spot in found])
    # First out of the subqueue that has it: the head of a key follows when its first job leaves or comes.
    yield Statement(statement("step_out"), document)
    yield Statement(statement("move"), document)
    return document


_ADD_SUBQUEUE = "INSERT INTO subqueues (queue, profile) VALUES ($1 ->> 0, $1 ->> 1) RETURNING id"

_found = msgspec.json.Decoder(tuple[int, int | None]).decode
_customer = msgspec.json.Decoder(str | None).decode
_texts = msgspec.json.Decoder(list[str]).decode
_as_pairs = msgspec.json.Decoder(list[Pair]).decode


def _subqueue(place: Place, room: tuple[int | None, bool]) -> Statements[int | None]:
    """Return the subqueue of a place, made if it is missing; None: it would need a new profile where there is no
    ``room``: so many may be live, or so many without those of customers."""
    queue, task, needs, whose = place
    wanted = (queue, task, requires_of(place))
    found = yield Statement(statement("find_subqueue"), encode(wanted))
    profile, subqueue = _found(found) if found else (None, None)
    if profile is None:
        # For both, before either is made: what is refused takes no room.
        new = {wanted[1:], (task, needs)} if whose else {wanted[1:]}
        if room[0] is not None and (yield Statement(statement("room"), encode((*room, list(new))))) != "1":
            return None
        base = (yield from _base((queue, task, needs))) if whose else None
        yield from _add_profile((*wanted, base, _customer(whose) if whose else None))
        found = yield Statement(statement("find_subqueue"), encode(wanted))
        profile, subqueue = _found(found)
        if subqueue is not None:  # it may have another profile than before
            yield Statement("UPDATE books SET subqueues_rev = subqueues_rev + 1", "")
    if subqueue is None:
        subqueue = int((yield Statement(_ADD_SUBQUEUE, encode((place[0], profile)))))
        yield Statement("UPDATE books SET subqueues_rev = subqueues_rev + 1", "")
    return subqueue


def _base(wanted: tuple[str, str, str]) -> Statements[int]:
    """Return the base profile of those of customers, made if it is missing."""
    found = yield Statement(statement("find_subqueue"), encode(wanted))
    return _found(found)[0] if found else (yield from _add_profile((*wanted, None, None)))


def _add_profile(row: tuple[Any, ...]) -> Statements[int]:
    profile = int((yield Statement(statement("add_profile"), encode(row))))
    if row[3] is None:  # workers do not know the profiles of customers
        yield Statement("UPDATE books SET profiles_rev = profiles_rev + 1", "")
    return profile


class Served:
    """The subqueues that each request of this session serves, kept in a temporary table for claims to read; those of
    paused tasks are left out."""

    _KEPT = 64

    def __init__(self) -> None:
        self._asks: dict[Any, tuple[int, int]] = {}

    def of(self, connection: apsw.Connection, ask: ClaimRequest, subqueues_rev: int | None = None) -> tuple[int, int]:
        """Return the request's number and the rev of its subqueues; made again if that is not ``subqueues_rev``."""
        key = (ask.profiles, ask.queues, ask.customers)
        known = self._asks.get(key)
        if known is not None and subqueues_rev in (None, known[1]):
            return known
        if known is None and len(self._asks) >= self._KEPT:
            connection.execute("DELETE FROM served")
            self._asks.clear()
        # The rev is read first, so that a subqueue that is added in between makes the next claim read again; as does a
        # task that is paused in between.
        rev: int = connection.execute("SELECT subqueues_rev FROM books").get
        number = len(self._asks) if known is None else known[0]
        queues = None if ask.queues is None else encode(ask.queues)
        connection.execute("DELETE FROM served WHERE ask = ?", (number,))
        asked = (encode(sorted(ask.profiles)), queues, encode(_paused_tasks(connection)))
        if ask.customers is None:
            connection.execute(statement("serve"), (number, *asked))
        else:
            rows: list[Any] = connection.execute(statement("of_customers"), asked).fetchall()
            found = [(number, subqueue) for subqueue, customer in rows if ask.customers.admits(customer)]
            connection.executemany("INSERT INTO served (ask, subqueue) VALUES (?, ?)", found)
        self._asks[key] = (number, rev)
        return self._asks[key]


def _paused_tasks(connection: apsw.Connection) -> list[str]:
    rows: list[Any] = connection.execute(_LIMITS).fetchall()
    return limits_of(rows).paused_tasks


_LIMITS = "SELECT key, value FROM settings WHERE key >= 'limit:' AND key < 'limit;'"
