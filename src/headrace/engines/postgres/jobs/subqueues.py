"""Subqueues and profiles: numbered in a commit of their own, remembered by each session, collected when many.

A change that moves a job to another subqueue does so in its own transaction.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from asyncpg.exceptions import LockNotAvailableError

from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.limits.profiles import OURS, allowed, excess, no_room, refusal, room_for, staked_by
from headrace.core.limits.settings import Group, Limits
from headrace.core.status import Verb
from headrace.engine.transactions import Statement, Statements
from headrace.engines.limits_cache import LimitsCache
from headrace.engines.postgres.jobs.rows import label, subqueues_lock
from headrace.engines.postgres.store.connection import Connection, digest, sql
from headrace.engines.postgres.store.pool import LONG_TIMEOUT_SECONDS, Pool
from headrace.engines.sql.encoding import Place, encode, pair_of, queues_by_customer, rank_of, requires_of
from headrace.engines.sql.subqueues import Collected, Interned, KnownSubqueues, Recounts, Spot
from headrace.errors import HeadraceError, Unavailable
from headrace.runtime.host import Host

__all__ = ["Moving", "NoSubqueue", "Served", "Serving", "Subqueues"]


_MAX_FRUITLESS_COLLECTIONS, _FRUITLESS_SECONDS = 3, 60.0
"""How often, within how many seconds, a session may collect without making enough room."""
_LOCK_TIMEOUT_MILLISECONDS = 250
"""Milliseconds for which a collection may wait for inserts under way; new inserts wait behind it."""
_NO_WAIT_SECONDS = 5.0
"""Seconds after a wait in vain during which a collection does not wait again."""


class Subqueues(KnownSubqueues):
    """The subqueues that a session knows."""

    def __init__(self, pool: Pool, schema: str, host: Host) -> None:
        super().__init__()
        self._pool, self._schema, self._host = pool, schema, host
        # Apart for the operator and for customers: these must not keep that one from making room.
        self._fruitless = {
            whose: deque([-math.inf] * _MAX_FRUITLESS_COLLECTIONS, maxlen=_MAX_FRUITLESS_COLLECTIONS)
            for whose in (None, OURS)
        }
        self._hold_off_until = -math.inf
        self._recounts = Recounts(host.clock)
        self.lock = subqueues_lock(schema)
        """The advisory lock that an insert takes shared, and a collection exclusively."""

    async def _intern(self, spots: list[Spot], now: datetime | None) -> Interned:
        digests = {place: digest(place[1], requires_of(place)) for place, _ in spots}
        bases = {place: digest(place[1], place[2]) for place, _ in spots if place[3]}
        async with self._pool.transaction() as connection:
            await connection.fetch(sql("lock_books", self._schema))
            refused = {} if now is None else await self._over(connection, spots, now)
            rest = [spot for spot in spots if spot not in refused]
            if now is not None:
                refused |= await self._without_room(connection, rest, digests, bases)
            kept = [spot for spot in rest if spot not in refused]
            asked = [
                _row(place, digests[place], bases.get(place)) for place in dict.fromkeys(place for place, _ in kept)
            ]
            await connection.execute(sql("intern", self._schema), encode(asked))
            rows = await connection.fetch(sql("subqueues", self._schema), sorted(set(digests.values())))
            subqueues = {(queue, code): subqueue for queue, code, subqueue in rows}
            found = {spot: subqueues[spot[0][0], digests[spot[0]]] for spot in kept}
            if stakes := [(whose, subqueue) for (_, whose), subqueue in found.items() if whose]:
                await connection.execute(sql("stake", self._schema), encode(stakes))
            collected = await connection.fetchval(f"SELECT last_value FROM {self._schema}.collections")
            return found, refused, collected

    async def _over(self, connection: Connection, spots: Sequence[Spot], now: datetime) -> dict[Spot, HeadraceError]:
        """Return the spots that are refused because their customers would have live jobs of too many pairs."""
        refused, staked = dict[Spot, HeadraceError](), sql("staked", self._schema)
        for customer in dict.fromkeys(whose for _, whose in spots if whose):
            wanted = {spot: pair_of(spot[0]) for spot in spots if spot[1] == customer}
            has = {(task, needs) for task, needs in await connection.fetch(staked, customer)}
            if has.issuperset(wanted.values()):
                continue
            keys = await connection.fetch(sql("key_profiles", self._schema))
            most = allowed(customer, (document for (document,) in keys), now)
            out = excess(has, wanted.values(), most)
            if out and self._recounts.may(customer):
                with self._recounts.counting(customer):
                    await self._recount(connection, customer)
                has = {(task, needs) for task, needs in await connection.fetch(staked, customer)}
                out = excess(has, wanted.values(), most)
            if out:
                why = refusal(customer, most)
                refused |= {spot: why for spot, pair in wanted.items() if pair in out}
        return refused

    async def renew(self, jobs: Iterable[Job]) -> None:
        """Forget the subqueues if any were collected, or a queue was set by customer, since they were learned, and the
        stakes for these jobs that were given up: for callers that cannot begin again within a transaction."""
        if self._subqueues:
            self.forget_unless((await self._pool.fetch(f"SELECT last_value FROM {self._schema}.collections"))[0][0])
        customers = {whose for job in jobs if (whose := staked_by(job.spec))}
        known = [stake for stake in self._stakes if stake[0] in customers]
        if known:
            held = f"SELECT customer, subqueue FROM {self._schema}.stakes WHERE customer = ANY ($1::text[])"
            self._stakes -= set(known) - {
                (whose, subqueue) for whose, subqueue in await self._pool.fetch(held, list(customers))
            }

    async def _queues(self) -> tuple[int, frozenset[str]]:
        # The count first: if a queue is set in between, the count has grown by the time that subqueues are used.
        collected: int = (await self._pool.fetch(f"SELECT last_value FROM {self._schema}.collections"))[0][0]
        rows = await self._pool.fetch(sql("settings", self._schema), "queue:")
        return collected, queues_by_customer((key, value) for key, value, _ in rows)

    async def _recount(self, connection: Connection, customer: str) -> None:
        """Remove the stakes of a customer for pairs of which it has no live job."""
        # The locks first: the next statement sees what an insert with one of them wrote.
        rows = await connection.fetch(sql("free_stakes", self._schema), customer)
        told = (customer, label(f"c{customer}"), [subqueue for (subqueue,) in rows])
        await connection.execute(sql("recount", self._schema), *told, timeout=LONG_TIMEOUT_SECONDS)

    async def _without_room(
        self, connection: Connection, spots: Sequence[Spot], digests: dict[Place, str], bases: dict[Place, str]
    ) -> dict[Spot, HeadraceError]:
        """Return the spots that are refused because they would need one profile too many, and why."""
        codes = sorted({*(digests[place] for place, _ in spots), *bases.values()})
        busy, out = False, self._out(spots, digests, bases, *await self._fresh(connection, codes))
        fruitless = self._fruitless[None if any(whose is None for _, whose in out) else OURS]
        if out and self._host.clock.monotonic() >= fruitless[0] + _FRUITLESS_SECONDS:
            if await self._collect(connection):
                # Some may be gone now.
                if out := self._out(spots, digests, bases, *await self._fresh(connection, codes)):
                    fruitless.append(self._host.clock.monotonic())
            else:
                busy = True
        if not busy:
            return {spot: no_room(spot[1]) for spot in out}
        return dict.fromkeys(
            out, Unavailable("no room for another pair of task and requirements while an insert is uncommitted")
        )

    async def _fresh(self, connection: Connection, codes: list[str]) -> tuple[set[str], int, int]:
        """Return which digests no live profile has, how many profiles are live, and how many not customers'."""
        fresh = set(await connection.fetchval(sql("fresh", self._schema), codes))
        live: int = await connection.fetchval(f"SELECT count(*) FROM {self._schema}.profiles WHERE live")
        there_is_room = live + len(fresh) <= (room_for(None) or 0)
        return fresh, live, live if there_is_room else await connection.fetchval(sql("room", self._schema))

    def _out(
        self,
        spots: Sequence[Spot],
        digests: dict[Place, str],
        bases: dict[Place, str],
        fresh: set[str],
        live: int,
        own: int,
    ) -> list[Spot]:
        """Return the spots that there is no room for."""
        taken, out = set[str](), list[Spot]()
        for place, whose in spots:
            code, room = digests[place], room_for(whose)
            needed = {code, bases.get(place, code)} & fresh - taken
            if needed and room is not None and (own if whose is None else live) + len(needed) > room:
                out.append((place, whose))
            else:
                taken |= needed
                live += len(needed)
                own += len(needed) if whose is None else 0
        return out

    async def _collect(self, connection: Connection) -> bool:
        """Forget what no live job needs; return whether that was possible: it is not while an insert is under way.

        This reads every job, so it is done only when there is no room left.
        """
        if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", self.lock):
            # New inserts wait behind this wait: so it must be short, and not come again at once.
            now = self._host.clock.monotonic()
            if now < self._hold_off_until:
                return False
            try:
                async with connection.transaction():
                    await connection.execute(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MILLISECONDS}")
                    await connection.execute("SELECT pg_advisory_xact_lock($1)", self.lock)
                    await connection.execute("SET LOCAL lock_timeout TO DEFAULT")
            except LockNotAvailableError:
                self._hold_off_until = now + _NO_WAIT_SECONDS
                return False
        await connection.execute(sql("collect", self._schema), timeout=LONG_TIMEOUT_SECONDS)
        return True


def _row(place: Place, code: str, base: str | None) -> tuple[Any, ...]:
    """Return a place as ``intern.sql`` takes it."""
    queue, task, needs, whose = place
    row = (queue, task, requires_of(place), code)
    return row if base is None else (*row, msgspec.json.decode(whose), needs, base)


class Serving(msgspec.Struct, frozen=True):
    """The subqueues that a request serves, the positions of their queues, and the revs for which both are valid.

    Those of paused queues and tasks are left out.
    """

    subqueues_rev: int
    settings_rev: int
    subqueues: list[int]
    places: list[int]
    priorities: dict[str, int]
    """The priorities of the queues that have one."""
    groups: list[Group]
    """The bounds of each subqueue."""
    limits: Limits
    chosen: bool = False
    """Whether these are the subqueues of some customers only."""

    def among(self, admits: Callable[[str | None], bool]) -> Serving:
        """Return the same with only the subqueues of admitted customers."""
        mine = [at for at, group in enumerate(self.groups) if admits(group.customer)]
        subqueues, places, groups = ([each[at] for at in mine] for each in (self.subqueues, self.places, self.groups))
        return msgspec.structs.replace(self, subqueues=subqueues, places=places, groups=groups)

    @property
    def bounded(self) -> bool:
        """Whether the core must select: some of the subqueues are limited, or the request selects customers."""
        return self.chosen or any(self.limits.bounded(group.queue, group.task) for group in self.groups)


class Served:
    """Which subqueues each request of this session serves."""

    _KEPT = 64

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool, self._schema = pool, schema
        self._asks: dict[Any, Serving] = {}
        self._limits_cache = LimitsCache()

    async def of(self, ask: ClaimRequest, *, anew: bool = False) -> Serving:
        """Return the subqueues of the request, as remembered; ``anew``: as they are now."""
        key = (ask.profiles, ask.queues, ask.customers)
        known = self._asks.get(key)
        if known is None or anew:
            if len(self._asks) >= self._KEPT:
                self._asks.clear()
            queues = None if ask.queues is None else list(ask.queues)
            [row] = await self._pool.fetch(sql("served", self._schema), sorted(ask.profiles), queues)
            subqueues_rev, settings_rev, subqueues, places, queues_of, tasks, names, priorities, apart, customers = row
            ranked = dict(zip(names, priorities, strict=True))
            of = zip(queues_of, tasks, customers, strict=True)
            groups = [Group(queue, task, None, customer) for queue, task, customer in of]
            limits, chosen = await self._limits_at(settings_rev), ask.customers is not None
            mine = [at for at, one in enumerate(groups) if not limits.task(one.task).paused]
            if ask.customers is not None:
                mine = [at for at in mine if apart[at] and ask.customers.admits(groups[at].customer)]
            if len(mine) < len(groups):
                subqueues, places, groups = ([each[at] for at in mine] for each in (subqueues, places, groups))
            known = Serving(subqueues_rev, settings_rev, subqueues, places, ranked, groups, limits, chosen)
            self._asks[key] = known
        return known

    async def _limits_at(self, settings_rev: int) -> Limits:
        if self._limits_cache.rev != settings_rev:
            rows = await self._pool.fetch(sql("settings", self._schema), "")
            return self._limits_cache.read(settings_rev, ((key, value) for key, value, _ in rows))
        return self._limits_cache.limits


class NoSubqueue(Exception):
    """The customer of an ended job may not have it retried."""

    def __init__(self, why: HeadraceError) -> None:
        self.why = why


class Moving:
    """The moves of one session; ``subqueues``: those that the session knows."""

    def __init__(self, schema: str, subqueues: Callable[[], Subqueues]) -> None:
        self._schema, self._subqueues = schema, subqueues

    async def statements(self, changes: Sequence[Change], now: datetime) -> Statements[None]:
        """Put the jobs of these changes into their new subqueues, for the transaction that applies them next.

        The subqueues are interned now. The limit of profiles holds for a retry of a customer's job alone: live jobs
        have theirs.

        :raises NoSubqueue: a retry needs a profile too many :raises Collected: when it is run; then the transaction
        must not be committed
        """
        subqueues = self._subqueues()
        jobs = [change.job for change in changes]
        limited = any(change.verb is Verb.RETRY and staked_by(change.job.spec) for change in changes)
        learned = await subqueues.learn(jobs, now=now if limited else None)
        if learned.refused:
            raise NoSubqueue(next(iter(learned.refused.values())))
        found = zip(changes, learned.subqueues_of(jobs), strict=True)
        rows = [(change.job.seq, change.rev, subqueue, rank_of(change.job)) for change, subqueue in found]

        def run() -> Statements[None]:
            document = {
                "collected": learned.collected,
                "lock": subqueues.lock,
                "rows": rows,
                "stakes": list(learned.stakes),
            }
            if (yield Statement(sql("move", self._schema), encode(document))) != "true":
                subqueues.doubt(learned)
                raise Collected

        return run()
