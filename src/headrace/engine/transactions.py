"""Transactions: a write as a value, which is run on a connection of the user's as part of the user's transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from headrace.core.change import Change, Verdict
from headrace.core.job import Job
from headrace.engine.values import Companions, InsertAnswer

__all__ = ["Enlisted", "Statement", "Statements", "Transactions", "walk", "walk_async"]


T = TypeVar("T")
Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Statement(msgspec.Struct, frozen=True):
    """One statement with one parameter, a text; its answer is a text, too, in a single row of a single column.

    So plain that every driver can carry it, whatever it makes of arrays and types.
    """

    sql: str
    """The parameter is spelled ``$1``, once."""
    document: str


Statements = Generator[Statement, str, T]
"""A write as a value: yields statements to be run one after the other on some connection, is sent the answer of each,
and returns what the verb would. It touches no connection itself, so a blocking one can be used on its own thread."""


def walk(statements: Generator[Question, Answer, T], execute: Callable[[Question], Answer]) -> T:
    """Run the statements one after the other; an error of one is raised, and nothing after it is run."""
    answer: Answer | None = None
    while True:
        try:
            question = next(statements) if answer is None else statements.send(answer)
        except StopIteration as over:
            value: T = over.value
            return value
        answer = execute(question)


async def walk_async(statements: Generator[Question, Answer, T], execute: Callable[[Question], Awaitable[Answer]]) -> T:
    """``walk``, where executing is awaited."""
    answer: Answer | None = None
    while True:
        try:
            question = next(statements) if answer is None else statements.send(answer)
        except StopIteration as over:
            value: T = over.value
            return value
        answer = await execute(question)


class Enlisted(Protocol):
    """A connection of the user's, as the engine can use it: within the transaction that the user opened."""

    blocking: bool
    """A synchronous connection: ``run_blocking``, on the thread of whoever owns it; otherwise ``run``."""
    exclusive: bool
    """While this transaction is open nobody else can write to the store: to wait for another write would be to wait
    for oneself."""

    @property
    def open(self) -> bool:
        """Whether a transaction is open on it now, as far as the driver can tell."""
        ...

    def run_blocking(self, statements: Statements[T]) -> T:
        """Run the statements here and now."""
        ...

    async def run(self, statements: Statements[T]) -> T:
        """Run the statements."""
        ...


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
