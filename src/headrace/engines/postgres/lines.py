"""Lines and profiles: interned in a commit of their own, remembered by each session, collected when too many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from headrace.core.claim import Ask
from headrace.engine import MAX_PROFILES
from headrace.engines.postgres.connection import Connection, digest, lock_number, sql
from headrace.engines.postgres.pool import Pool
from headrace.engines.record import Place, encode

__all__ = ["Lines", "Served", "Serving"]


class Lines:
    """The lines this session has interned; good for one count of collections."""

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool, self._schema = pool, schema
        self._lines: dict[Place, int] = {}
        self.collected = -1
        """The count of collections at which what is remembered is good."""
        self.lock = lock_number(schema, "lines")
        """What an insert holds shared, and a collection alone."""

    def forget(self) -> None:
        """Lines were collected: remember none."""
        self._lines.clear()
        self.collected = -1

    def of(self, place: Place) -> int:
        """The line of a place that was learned."""
        return self._lines[place]

    async def learn(self, places: Iterable[Place]) -> set[Place]:
        """Intern what this session does not remember; the places there is no room for."""
        wanted, refused = set(places), set[Place]()
        while missing := {place for place in wanted if place not in self._lines} - refused:
            async with self._pool.transaction() as connection:
                found, none, collected = await self._intern(connection, sorted(missing))
            if collected != self.collected:
                self._lines.clear()
                refused.clear()
                self.collected = collected
            self._lines |= found
            refused |= none
        return refused

    async def _intern(
        self, connection: Connection, places: Sequence[Place]
    ) -> tuple[dict[Place, int], set[Place], int]:
        digests = {place: digest(place[1], place[2]) for place in places}
        await connection.fetch(sql("lock_books", self._schema))
        refused = await self._without_room(connection, digests)
        kept = [(*place, digests[place]) for place in places if place not in refused]
        await connection.execute(sql("intern", self._schema), encode(kept))
        rows = await connection.fetch(sql("lines", self._schema), sorted(set(digests.values())))
        lines = {(queue, code): line for queue, code, line in rows}
        collected = await connection.fetchval(f"SELECT last_value FROM {self._schema}.collections")
        return {(queue, task, needs): lines[queue, code] for queue, task, needs, code in kept}, refused, collected

    async def _without_room(self, connection: Connection, digests: dict[Place, str]) -> set[Place]:
        """The places that would need one profile too many."""
        codes = sorted(set(digests.values()))
        fresh = set(await connection.fetchval(sql("fresh", self._schema), codes))
        room = await self._room(connection, len(fresh))
        allowed = set[str]()
        for code in digests.values():
            if code in fresh and len(allowed) < room:
                allowed.add(code)
        return {place for place, code in digests.items() if code in fresh and code not in allowed}

    async def _room(self, connection: Connection, wanted: int) -> int:
        count = f"SELECT {MAX_PROFILES} - count(*) FROM {self._schema}.profiles WHERE live"
        room: int = await connection.fetchval(count)
        if wanted <= room:
            return room
        # Looks at every job: done only when there is no other way, and not while an insert is under way.
        if await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", self.lock):
            await connection.execute(sql("collect", self._schema))
            room = await connection.fetchval(count)
        return room


class Serving(msgspec.Struct, frozen=True):
    """The lines an ask serves, where each queue stands, and what both hold for."""

    lines_rev: int
    settings_rev: int
    lines: list[int]
    places: list[int]
    priorities: dict[str, int]
    """Of the queues that have one."""


class Served:
    """Which lines each ask of this session serves."""

    _KEPT = 64

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool, self._schema = pool, schema
        self._asks: dict[tuple[frozenset[int], tuple[str, ...] | None], Serving] = {}

    async def of(self, ask: Ask, *, anew: bool = False) -> Serving:
        """The lines of the ask, as remembered, or as they are now."""
        key = (ask.profiles, ask.queues)
        known = self._asks.get(key)
        if known is None or anew:
            if len(self._asks) >= self._KEPT:
                self._asks.clear()
            queues = None if ask.queues is None else list(ask.queues)
            rows = await self._pool.fetch(sql("served", self._schema), sorted(ask.profiles), queues)
            lines_rev, settings_rev, lines, places, names, priorities = rows[0]
            ranked = dict(zip(names, priorities, strict=True))
            known = self._asks[key] = Serving(lines_rev, settings_rev, lines, places, ranked)
        return known
