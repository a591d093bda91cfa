"""Transactions: writes of the engine as part of a transaction of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol

from headrace.core.change import Change, Verdict
from headrace.core.job import Job
from headrace.engine.answers import Companions, InsertAnswer
from headrace.engine.statements import Enlisted, Statements

__all__ = ["Transactions"]


class Transactions(Protocol):
    """Joins transactions of the user's. A write is a value (``Statements``) that is run on a connection
    which the engine did not make. Where a store has no transactions that a user could join, an engine has None here."""

    def enlist(self, connection: Any) -> Enlisted:
        """The connection as the engine can use it.

        :raises NotSupported: this kind of connection is unknown to the engine.
        :raises ConfigError: no transaction is open on it.
        """
        ...

    async def inserting(
        self, jobs: Sequence[Job], now: datetime, *, companions: Companions | None = None
    ) -> Statements[list[InsertAnswer]]:
        """``Jobs.insert`` for the user's connection. What must be durable before it (profiles) already is.

        A key that is taken fails nothing: the answer is ``Duplicated``. Hints about these jobs go out with the commit,
        not before: the engine sees to that, since nobody else knows when it happens.
        """
        ...

    async def applying(self, change: Change, now: datetime) -> Statements[Verdict]:
        """``Jobs.apply`` of one change of a worker, or of a submit on the holder of its key, for the user's connection.
        What must be durable before it (the profiles of jobs that it inserts, the line it moves to) already is."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A connection of the engine's own, in a transaction that ends with the block: committed, or rolled back if
        the block raises.

        :raises Unavailable: with outcome ``unknown`` when the commit was not answered.
        """
        ...
