"""Inserting new jobs in one statement, after a lookup if they have dedup or request keys, or one is stored already."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from asyncpg.exceptions import LockNotAvailableError, UniqueViolationError
from msgspec.structs import replace

from headrace.core.batch import Batch
from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.status import Verb
from headrace.engine import MAX_BATCH, Companions, InsertAnswer, Inserted, Refused
from headrace.engine.bus import Hint, Topic
from headrace.engine.transactions import Statement, Statements
from headrace.engines.postgres.bus.role import NotifyBus
from headrace.engines.postgres.jobs.apply import changing
from headrace.engines.postgres.jobs.columns import OF_PLAIN
from headrace.engines.postgres.jobs.relations import Relatives, hold_relatives, not_now, relate
from headrace.engines.postgres.jobs.rows import (
    RECORD_TYPE,
    TEXTS_OF_RUN,
    Reader,
    held_key,
    is_new,
    is_one,
    key_lock,
    request_key,
    request_lock,
    row_at_once,
    row_of_new,
    row_of_one,
    runs_of,
)
from headrace.engines.postgres.jobs.subqueues import Subqueues
from headrace.engines.postgres.store.arrays import columns, literal, literal_of_texts
from headrace.engines.postgres.store.connection import sql
from headrace.engines.postgres.store.drivers import Waiting, run_statements
from headrace.engines.postgres.store.pool import Pool
from headrace.engines.sql.companions import NO_GROUPS, Groups, Sorted
from headrace.engines.sql.encoding import (
    Micros,
    asked_for,
    encode,
    is_at_once,
    micros,
    queues_by_customer,
    replaced,
    sort_out,
)
from headrace.engines.sql.inserts import Lost, storing_inserts
from headrace.engines.sql.reader import Stored
from headrace.engines.sql.relations import answers_of_stored, is_related
from headrace.engines.sql.search.finder import BLOCK_SPAN_BITS
from headrace.engines.sql.subqueues import Collected, Learned, stakes_of
from headrace.engines.validation import refuse_jobs
from headrace.errors import HeadraceError, Unavailable, Unstorable
from headrace.runtime.host import Host

__all__ = ["Inserting"]

_MAX_TRIES = 20
_KEY_LOCK_TIMEOUT_MILLISECONDS = 250
"""Milliseconds to wait for keys that others have locked; longer would keep the jobs of other keys waiting."""
_NO_WAIT_SECONDS = 2.0
"""Seconds without waiting for any key after a wait was in vain: longer than the pause of a refused caller."""


_NO_HINT = (None, None)

_GIVEN_UP = "the places of these jobs were just given up as unused: submit them again"

_BLOCK_BITS = 13
"""By how many bits order numbers are shifted for the list of blocks by time (``list_blocks.sql``)."""
_NO_BLOCK = -1
"""In place of a block: none."""


class _Stored(msgspec.Struct):
    open: bool
    stored: list[tuple[int, int]]
    """Indexes, from 1, and order numbers."""
    bare: list[str]
    """The ids of bodies without a stored job."""


_stored = msgspec.json.Decoder(_Stored).decode
_bools = msgspec.json.Decoder(list[bool]).decode
_known = msgspec.json.Decoder(list[tuple[str | None, RECORD_TYPE]]).decode
_merged = msgspec.json.Decoder(list[tuple[UUID, RECORD_TYPE]]).decode


class _Partly(Exception):
    """Some jobs of a batch are refused, so that none is stored."""

    def __init__(self, why: HeadraceError) -> None:
        self.why = why


class _Questionable(Exception):
    """Another transaction has locked a relative of a new job, or the relative does not allow the job."""


_Write = Callable[..., Awaitable[list[Any]]]


class Inserting:
    """The inserts of one session, with the subqueues it remembers."""

    def __init__(self, hot: Pool, cold: Pool, schema: str, bus: NotifyBus, host: Host) -> None:
        self._hot, self._cold, self._schema, self._bus, self._host = hot, cold, schema, bus, host
        self._text, self._text_of_one = sql("insert", schema), sql("insert_one", schema)
        self._text_of_plain = sql("insert_one", schema, **OF_PLAIN)
        self.forget()

    def forget(self) -> None:
        """Forget what an earlier session learned of the store."""
        self.subqueues = Subqueues(self._cold, self._schema, self._host)
        """The subqueues that this session knows."""
        self._listed = (_NO_BLOCK, 0)
        """A block of order numbers, and a span of time that an insert of this session has listed there.

        An entry is removed when all jobs have higher numbers than those of its block, so after the last of these was
        given. So an insert with a number of that block need not check or list it again.
        """
        self._hurry_until = -math.inf

    async def insert(
        self,
        jobs: Sequence[Job],
        now: datetime,
        batch: Batch | None = None,
        *,
        whole: bool = False,
        companions: Companions | None = None,
    ) -> list[InsertAnswer]:
        """The verb ``Jobs.insert``."""
        return await self.subqueues.insert(jobs, now, batch, whole, companions, self._insert, self._look)

    async def _look(self, jobs: list[Job]) -> dict[UUID, InsertAnswer]:
        async with self._cold.connection() as connection:
            return await run_statements(connection, _answers(self._schema, jobs))

    def insert_one(self, job: Job, now: datetime, done: Callable[[InsertAnswer | BaseException | None], None]) -> bool:
        """The verb ``InsertsOne.insert_one``."""
        subqueue = self.subqueues.known(job)
        if subqueue is None or not is_one(job) or "\0" in job.payload_text:
            return False
        try:  # its other texts are those of a subqueue, which are stored
            if is_at_once(job):
                text, row = self._text_of_plain, row_at_once(job, subqueue)
            else:
                text, row = self._text_of_one, row_of_one(job, subqueue, Micros())
        except (Unstorable, UnicodeError):
            return False  # and ``insert`` returns why
        connection = self._hot.at_hand()
        if connection is None:
            return False
        collected, hints = self.subqueues.collected, self._bus.ready_now((job.spec.queue,))
        block, span = self._listed
        created = micros(job.spec.created_at) >> BLOCK_SPAN_BITS

        def over(rows: list[Any], error: Exception | None) -> None:
            if error is not None:
                # An id that is stored already, or no room for the hint: ``insert`` handles both.
                again = isinstance(error, UniqueViolationError) or (hints and "NOTIFY" in str(error))
                done(None if again else error)
            elif not rows:
                self.subqueues.forget(collected)
                done(None)
            else:
                seq = rows[0][0]
                self._listed = seq >> _BLOCK_BITS, created
                self._bus.ready_told(hints)
                done(Inserted(replace(job, seq=seq)))

        hint = hints[0] if hints else _NO_HINT
        listed = block if span == created else _NO_BLOCK
        args = (job.id, job.payload_text, collected, self.subqueues.lock, *hint, listed, *row)
        self._hot.begin(connection, text, args, over)
        return True

    async def realign(self, limit: int = MAX_BATCH) -> int:
        """The verb ``Jobs.realign``."""
        rows = await self._hot.fetch(sql("settings", self._schema), "queue:")
        queues = sorted(queues_by_customer((key, value) for key, value, _ in rows))
        told = False
        while True:
            found = Reader().jobs(await self._hot.fetch(sql("astray", self._schema), queues, limit))
            if not found:
                return 0
            if not told:
                # Some session does not know of the setting, perhaps this one: the process that set it may have died
                # before it had notified all of them.
                [(collected,)] = await self._hot.fetch(f"SELECT nextval('{self._schema}.collections')")
                self.subqueues.forget_unless(collected)
                told = True
            learned = await self.subqueues.learn(found, now=None)
            moves = [(job.seq, job.rev, learned.subqueue_of(job)) for job in found]
            document = {"collected": learned.collected, "lock": self.subqueues.lock, "rows": moves}
            moved = (await self._hot.fetch(sql("realign", self._schema), encode(document)))[0][0]
            if moved is not None:
                return int(moved)
            self.subqueues.forget(learned.collected)

    async def of_changes(self, jobs: Sequence[Job]) -> Callable[[Sequence[Change]], Statements[Lost]]:
        """Return the statements, for any connection, that store these jobs of changes; their subqueues are interned
        now. None is refused for lack of a profile."""
        refuse_jobs(jobs)
        await self.subqueues.renew(jobs)
        learned = await self.subqueues.learn(jobs, now=None)

        def insert(jobs: Sequence[Job]) -> Statements[list[InsertAnswer]]:
            return self._statements(jobs, learned, wait=True, tell=True)

        def run(changes: Sequence[Change]) -> Statements[Lost]:
            try:
                return (yield from storing_inserts(changes, insert, sql("record_events", self._schema)))
            except Collected:
                self.subqueues.doubt(learned)
                raise Unavailable(_GIVEN_UP) from None

        return run

    async def statements(
        self, jobs: Sequence[Job], companions: Companions | None = None, *, now: datetime | None
    ) -> Statements[list[InsertAnswer]]:
        """Return the insert of these jobs as statements for a user's connection; their subqueues are interned now.
        ``now``: as for ``KnownSubqueues.learn``."""
        groups = Groups(companions)
        joined = groups.joined(jobs)
        refuse_jobs(joined)
        await self.subqueues.renew(joined)
        learned = await self.subqueues.learn(joined, now=now)
        refused = groups.refusals(learned.refusals(joined))
        taken = groups.joined([job for job in jobs if job.id not in refused])

        def run() -> Statements[list[InsertAnswer]]:
            out: dict[UUID, InsertAnswer] = {id: Refused(why) for id, why in refused.items()}
            if refused:
                out |= yield from _answers(self._schema, [job for job in jobs if job.id in refused])
            try:
                stored = yield from self._statements(taken, learned, wait=True, tell=True, groups=groups)
            except Collected:
                # New subqueues must be committed before a transaction that may be rolled back refers to them.
                self.subqueues.doubt(learned)
                raise Unavailable(_GIVEN_UP) from None
            rest = iter(groups.leaders(zip(taken, stored, strict=True)))
            return [out[job.id] if job.id in out else next(rest) for job in jobs]

        return run()

    async def _insert(
        self, jobs: list[Job], learned: Learned, batch: Batch | None, whole: bool, groups: Groups
    ) -> list[InsertAnswer]:
        if jobs and all(is_new(job) and not _has_keys(job) for job in jobs):
            related = batch is not None or any(is_related(job) for job in jobs)
            try:
                return await self._insert_new(
                    jobs, learned, partial(self._with_relatives, jobs, batch) if related else None
                )
            except (UniqueViolationError, _Questionable):
                pass  # an id is stored already, or a relative does not allow its job: find out which
        if whole:
            try:
                statements = self._statements(jobs, learned, wait=False, batch=batch, groups=groups)
                return await self._write(statements, whole=True)
            except _Partly as partly:
                return [Refused(partly.why)] * len(jobs)
        answers = await self._write(self._statements(jobs, learned, wait=False, groups=groups))
        busy = [at for at, answer in enumerate(answers) if _for_now(answer)]
        if not busy:
            return answers
        if self._host.clock.monotonic() >= self._hurry_until:
            again = await self._insert_patiently([jobs[at] for at in busy], learned, groups)
            for at, answer in zip(busy, again, strict=True):
                answers[at] = answer
        if any(_for_now(answers[at]) for at in busy):
            self._hurry_until = self._host.clock.monotonic() + _NO_WAIT_SECONDS
        return answers

    async def _insert_patiently(self, jobs: list[Job], learned: Learned, groups: Groups) -> list[InsertAnswer]:
        """Store jobs with keys or relatives that others have locked; refuse them for now if that takes too long.

        Most such locks last only a moment, until a commit.
        """
        try:
            statements = self._statements(jobs, learned, wait=True, groups=groups)
            return await self._write(statements, patience=_KEY_LOCK_TIMEOUT_MILLISECONDS)
        except Unavailable as error:
            if not isinstance(error.__cause__, LockNotAvailableError):
                raise
        return [Refused(not_now(job)) for job in jobs]

    async def _write(
        self, statements: Statements[list[InsertAnswer]], *, patience: int | None = None, whole: bool = False
    ) -> list[InsertAnswer]:
        """Run the statements in a transaction.

        ``patience``: the timeout of each lock in milliseconds; ``whole``: store all jobs or none.
        """
        try:
            async with self._cold.transaction() as connection:
                if patience is not None:
                    await connection.execute(f"SET LOCAL lock_timeout = {patience}")
                answers = await run_statements(connection, statements)
                refused = [answer.error for answer in answers if isinstance(answer, Refused)]
                if whole and refused:
                    # A final refusal says more than one that is only for now.
                    raise _Partly(min(refused, key=lambda error: isinstance(error, Unavailable)))
                return answers
        except UniqueViolationError as error:
            raise Unavailable("another job of the same id or key came between: nothing was stored") from error

    async def _insert_new(self, jobs: list[Job], learned: Learned, write: _Write | None) -> list[InsertAnswer]:
        """Store jobs as if none were stored yet; ``write`` runs the statement, and what it needs around it."""
        write = write or self._hot.fetch
        ids, payloads, runs = runs_of(jobs, learned.subqueue_of)
        # The first hint is part of the insert itself: workers receive it with the commit, without another round trip.
        hints = self._bus.ready_now({jobs[run[0] - 1].spec.queue for run in runs})
        args = (
            literal(ids),
            literal_of_texts(payloads),
            learned.collected,
            self.subqueues.lock,
        )
        stakes = stakes_of(jobs, map(learned.subqueue_of, jobs)) if learned.stakes else ()
        rest = ([whose for whose, _ in stakes], [subqueue for _, subqueue in stakes], *columns(runs, TEXTS_OF_RUN))
        try:
            found = await write(self._text, *args, *_unzipped(hints), *rest)
        except Unavailable as error:
            if not hints or "NOTIFY" not in str(error):
                raise
            # A session listens but does not read, and the server's queue of notifications is full. Jobs need no hint.
            found, hints = await write(self._text, *args, [], [], *rest), []
        first = found[0][0]
        if first is None:
            raise Collected
        self._bus.ready_told(hints)
        return [Inserted(replace(job, seq=seq)) for seq, job in enumerate(jobs, first)]

    async def _with_relatives(self, jobs: list[Job], batch: Batch | None, text: str, *args: Any) -> list[Any]:
        """Run the statement that stores the jobs while their relatives are locked, and store their relations."""
        async with self._hot.transaction() as connection:
            if batch is not None:
                await run_statements(connection, relate(self._schema, (), batch))
            relatives = await run_statements(connection, hold_relatives(self._schema, jobs, wait=False))
            if relatives.busy(jobs, ()) or relatives.refuse(jobs):
                raise _Questionable
            found: list[Any] = await connection.fetch(text, *args)
            if (first := found[0][0]) is None:
                raise Collected  # within the transaction, so that the batch is not stored without its jobs
            stored = [replace(job, seq=seq) for seq, job in enumerate(jobs, first)]
            await run_statements(connection, relate(self._schema, stored))
            return found

    def _statements(
        self,
        jobs: Sequence[Job],
        learned: Learned,
        *,
        wait: bool,
        tell: bool = False,
        batch: Batch | None = None,
        groups: Groups = NO_GROUPS,
    ) -> Statements[list[InsertAnswer]]:
        """Lock the keys and the relatives of the jobs, read which jobs are stored already, and store the others.

        ``wait`` for what another transaction has locked; otherwise the jobs that need it are refused for now.
        """
        if not jobs and batch is None:
            return []
        if batch is not None:
            yield from relate(self._schema, (), batch)
        keyed = yield from _lock_keys(self._schema, jobs, wait=wait)
        blind = not groups and not any(map(_has_keys, jobs))
        for _ in range(_MAX_TRIES):
            relatives = yield from hold_relatives(self._schema, jobs, wait=wait)
            busy = relatives.busy(jobs, keyed)
            while groups and busy < (more := relatives.busy(jobs, groups.of(busy))):
                busy = more
            free = [job for job in jobs if job.id not in busy]
            if blind and not busy and not relatives.refuse(jobs):
                # Without keys, most likely none of them is stored yet, and a lookup would be in vain.
                stored = yield from self._store(jobs, learned, tell=tell)
                if stored is not None:
                    return [Inserted(job) for job in stored]
            blind = False
            answers = yield from self._sort_out(free, relatives, learned, groups, tell=tell)
            if answers is not None:
                return [answers.get(job.id) or Refused(not_now(job)) for job in jobs]
        raise Unavailable(f"{len(jobs)} jobs met others of the same id {_MAX_TRIES} times")

    def _sort_out(
        self, jobs: Sequence[Job], relatives: Relatives, learned: Learned, groups: Groups, *, tell: bool
    ) -> Statements[dict[UUID, InsertAnswer] | None]:
        """Read which jobs are stored already, and store the others; None if another transaction just stored one."""
        known, here, holders, firsts = yield from _look(self._schema, jobs)
        merged = yield from _look_for_merged(self._schema, jobs)

        def sort(jobs: Sequence[Job]) -> Sorted:
            # In order: a refused job does not take its key, so a later job with that key may be new, and others may
            # wait for that one.
            admission, keys = relatives.admit(), {"key_of": held_key, "request_of": request_key}
            return *sort_out(jobs, here, holders, firsts, admission.refuses, merged=merged, **keys), admission

        fresh, answers, _ = groups.sort_out(jobs, sort)
        stored = yield from self._store([jobs[at] for at in fresh], learned, tell=tell)
        if stored is None:
            return None
        known |= {job.id: job for job in (*merged.values(), *stored)}
        return dict(zip((job.id for job in jobs), replaced(jobs, answers(known), merged), strict=True))

    def _store(self, jobs: Sequence[Job], learned: Learned, *, tell: bool) -> Statements[list[Job] | None]:
        """Write new jobs; None if not all of them were new (those that were are written).

        ``tell``: send the hints with the commit, because the transaction is the user's.
        """
        stored = list[Job]()
        # Each statement takes so many order numbers: those behind them belong to another.
        for start in range(0, len(jobs), MAX_BATCH):
            stored += yield from self._store_some(jobs[start : start + MAX_BATCH], learned, tell=tell)
        # These jobs have been changed since they were made; the insert writes only the fields of a new job.
        rest = [Change(verb=Verb.SUBMIT, rev=1, job=job) for job in stored if not is_new(job)]
        if rest:
            yield from changing(self._schema, rest)
        if stored:
            yield from relate(self._schema, stored)
        return stored if len(stored) == len(jobs) else None

    def _store_some(self, jobs: Sequence[Job], learned: Learned, *, tell: bool) -> Statements[list[Job]]:
        """Write new jobs, at most ``MAX_BATCH``; return those that were new."""
        at = Micros()
        rows = [row_of_new(job, learned.subqueue_of(job), at) for job in jobs]
        document = {
            "collected": learned.collected,
            "lock": self.subqueues.lock,
            "rows": rows,
            "stakes": list(stakes_of(jobs, map(learned.subqueue_of, jobs))) if learned.stakes else [],
            "hints": self._bus.written(Hint(Topic.READY, tuple({job.spec.queue for job in jobs}))) if tell else [],
        }
        answer = _stored((yield Statement(sql("insert_document", self._schema), encode(document))))
        if not answer.open:
            raise Collected
        if answer.bare:
            yield Statement(sql("unkeep", self._schema), encode(answer.bare))
        return [replace(jobs[place - 1], seq=seq) for place, seq in answer.stored]


def _unzipped(hints: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [channel for channel, _ in hints], [message for _, message in hints]


def _for_now(answer: InsertAnswer) -> bool:
    return isinstance(answer, Refused) and isinstance(answer.error, Unavailable)


def _lock_keys(schema: str, jobs: Sequence[Job], *, wait: bool) -> Statements[set[UUID]]:
    """Lock the dedup and request keys until the transaction ends; return the ids of jobs with keys locked by others."""
    numbers = {job.id: _locks_of(schema, job) for job in jobs if _has_keys(job)}
    order = sorted(set[int]().union(*numbers.values()))  # the same for all transactions, so that there is no deadlock
    if not order:
        return set()
    trying, document = sql("try_keys", schema), encode(order)
    held = _bools((yield Waiting(sql("lock_keys", schema), document, trying) if wait else Statement(trying, document)))
    free = {number for number, ours in zip(order, held, strict=True) if ours}
    return {id for id, locks in numbers.items() if not locks <= free}


def _has_keys(job: Job) -> bool:
    return job.spec.dedup is not None or job.spec.request_key is not None


def _locks_of(schema: str, job: Job) -> set[int]:
    dedup = set() if job.spec.dedup is None else {key_lock(schema, job)}
    return dedup if job.spec.request_key is None else dedup | {request_lock(schema, job)}


def _look(schema: str, jobs: Sequence[Job]) -> Statements[Stored]:
    """Read which of these jobs are stored already."""
    keys = [key for job in jobs if (key := held_key(job)) is not None]
    requests = [request for job in jobs if (request := request_key(job)) is not None]
    document = encode({"ids": [job.id for job in jobs], "keys": keys, "requests": requests})
    return Reader().stored(_known((yield Statement(sql("known", schema), document))))


def _answers(schema: str, jobs: Sequence[Job]) -> Statements[dict[UUID, InsertAnswer]]:
    """Return the replies for those of these jobs that are not new."""
    stored, merged = (yield from _look(schema, jobs)), (yield from _look_for_merged(schema, jobs))
    return answers_of_stored(jobs, stored, merged, key_of=held_key, request_of=request_key)


def _look_for_merged(schema: str, jobs: Sequence[Job]) -> Statements[dict[UUID, Job]]:
    """Return the jobs that took over what was submitted under the ids of these, by these ids."""
    if not (ids := asked_for(jobs)):
        return {}
    rows = _merged((yield Statement(sql("merged", schema), encode(ids))))
    return {id: Reader().job(record) for id, record in rows}
