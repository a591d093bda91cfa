"""Transactions: a write as a value, which runs on a connection of the user as part of the user's transaction."""

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
    """One statement with one parameter, a text; its result is a text, too, in a single row of a single column.

    So simple that every driver can carry it, whatever it makes of arrays and types.
    """

    sql: str
    """The parameter is written ``$1``, once."""
    document: str


Statements = Generator[Statement, str, T]
"""A write as a value: yields statements to be run one after the other on some connection, is sent the result of each,
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
    """A connection of the user, as the engine can use it: within the transaction that the user opened."""

    blocking: bool
    """A synchronous connection: use ``run_blocking``, on the thread of its owner; otherwise ``run``."""
    exclusive: bool
    """While this transaction is open no other can write to the store: waiting for another write would be a deadlock."""

    @property
    def open(self) -> bool:
        """Return whether a transaction is open on it now, as far as the driver can tell."""

    def run_blocking(self, statements: Statements[T]) -> T:
        """Run the statements here and now."""

    async def run(self, statements: Statements[T]) -> T:
        """Run the statements."""


class Transactions(Protocol):
    """Joins transactions of the user. A write is a value (``Statements``) that runs on a connection that the engine did
    not make. Where a store has no transactions that a user could join, an engine has None here."""

    def enlist(self, connection: Any) -> Enlisted:
        """Return the connection as the engine can use it.

        :raises NotSupported: this kind of connection is unknown to the engine. :raises ConfigError: no transaction is
        open on it.
        """

    async def inserting(
        self, jobs: Sequence[Job], now: datetime, *, companions: Companions | None = None
    ) -> Statements[list[InsertAnswer]]:
        """Return ``Jobs.insert`` for the user's connection. What must be durable before it (profiles) already is.

        A taken key fails nothing: the reply is ``Duplicated``. Hints about these jobs are sent with the commit, not
        before: the engine ensures that, since only it knows when the commit happens.
        """

    async def applying(self, change: Change, now: datetime) -> Statements[Verdict]:
        """Return ``Jobs.apply`` of one change of a worker, or of a submit on the holder of its key, for the user's
        connection. What must be durable before it (profiles of inserted jobs, the subqueue it moves to) already is."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Return a connection of the engine's own, in a transaction that ends with the block: committed, or rolled back
        if the block raises.

        :raises Unavailable: with outcome ``unknown`` when the commit got no reply.
        """
