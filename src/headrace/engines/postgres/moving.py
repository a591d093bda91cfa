"""Moving jobs to other subqueues, in the transaction that applies the changes which make that necessary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from headrace.core.change import Change
from headrace.core.limits.profiles import staked_by
from headrace.core.status import Verb
from headrace.engine.statements import Statement, Statements
from headrace.engines.postgres.connection import sql
from headrace.engines.postgres.lines import Subqueues
from headrace.engines.sql.lines import Collected
from headrace.engines.sql.record import encode, rank_of
from headrace.errors import HeadraceError

__all__ = ["Moving", "NoSubqueue"]


class NoSubqueue(Exception):
    """The customer of an ended job may not have it back."""

    def __init__(self, why: HeadraceError) -> None:
        self.why = why


class Moving:
    """The moves of one session; ``subqueues``: those that the session knows."""

    def __init__(self, schema: str, subqueues: Callable[[], Subqueues]) -> None:
        self._schema, self._subqueues = schema, subqueues

    async def statements(self, changes: Sequence[Change], now: datetime) -> Statements[None]:
        """Put the jobs of these changes where they stand after them, for the transaction that applies them next.

        The subqueues are interned now. The limit of profiles holds for a retry of a customer's job alone: live jobs
        have theirs.

        :raises NoSubqueue: a retry needs a profile too many
        :raises Collected: when it is run; then the transaction must not be committed
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
