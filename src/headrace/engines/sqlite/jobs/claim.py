"""Claims: one statement on the writing thread, or one transaction with limits."""

from __future__ import annotations

from datetime import datetime

import apsw
import msgspec

from headrace.core.defaults import Rules
from headrace.core.lifecycle.claim import ClaimRequest, Grant
from headrace.core.limits.settings import Limits
from headrace.engines.sql.encoding import micros
from headrace.engines.sqlite.jobs.limited_claim import MAX_PROMOTED_JOBS, Limiting
from headrace.engines.sqlite.jobs.subqueues import Served
from headrace.engines.sqlite.store.connection import ask as statement

__all__ = ["Claiming", "Head"]


class Head(msgspec.Struct, array_like=True):
    """The reply to a claim, except for its jobs."""

    alive: bool
    subqueues_rev: int
    profiles_rev: int
    settings_rev: int
    next_due: int | None
    full: bool = False
    next_permit: int | None = None
    over: bool = False

    def is_late(self, now: int) -> bool:
        """Return whether there are jobs that are due but not queued yet."""
        return self.next_due is not None and self.next_due <= now


_head = msgspec.json.Decoder(Head, strict=False).decode


class Claiming:
    """The claims on one connection, with the subqueues that each request serves, and the limits."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._served, self._limiting = Served(), Limiting(rules)

    def claim(
        self, connection: apsw.Connection, ask: ClaimRequest, given: Grant, now: datetime
    ) -> tuple[Head, str, Limits | None]:
        """Promote what is due, then give the worker the first jobs in order that it may take: return their records.

        Also the limits that applied; None if none did.
        """
        accepted = None if given.accepted_at is None else micros(given.accepted_at)
        terms = (ask.n, ask.free, self._rules.fragile_after, given.status.value)
        times = (micros(given.assigned_at), accepted, micros(given.act_by))
        number, rev = self._served.of(connection, ask)
        while True:
            limits = self._limiting.of(connection, ask, number, rev, times[0])
            if limits is None:
                args = (given.worker.bytes, given.claim, number, rev, *terms, *times)
                top, jobs, over = connection.execute(statement("claim"), args).get
                head = _head(top)
                head.over = bool(over)
            else:
                head, jobs = self._limited(connection, number, rev, ask, given, now, limits)
            known = limits is None or head.settings_rev == self._limiting.rev
            if head.alive and head.is_late(times[0]):
                # More jobs are due than one statement queues. Nothing is given before all of them are queued.
                connection.execute(statement("promote"), (times[0], MAX_PROMOTED_JOBS))
                continue
            if not head.alive or (head.subqueues_rev == rev and known):
                return head, jobs, limits
            number, rev = self._served.of(connection, ask, head.subqueues_rev)

    def _limited(
        self,
        connection: apsw.Connection,
        number: int,
        rev: int,
        ask: ClaimRequest,
        given: Grant,
        now: datetime,
        limits: Limits,
    ) -> tuple[Head, str]:
        connection.execute("BEGIN IMMEDIATE")
        head, jobs, dealt = _head(connection.execute(statement("claim_top"), (given.worker.bytes,)).get), "[]", None
        # While this waited for the lock of the file, others may have changed a limit or paused a queue.
        if head.alive and head.subqueues_rev == rev and head.settings_rev == self._limiting.rev:
            if head.next_due is not None and head.next_due <= micros(now):
                connection.execute(statement("promote"), (micros(now), MAX_PROMOTED_JOBS))
                head = _head(connection.execute(statement("claim_top"), (given.worker.bytes,)).get)
            if not head.is_late(micros(now)):
                jobs, dealt, head.over = self._limiting.claim(connection, number, ask, given, now, limits)
        connection.execute("COMMIT")
        if dealt is not None:
            head.full = bool(dealt.full)
            if dealt.next_permit is not None:
                head.next_permit = micros(dealt.next_permit)
        return head, jobs
