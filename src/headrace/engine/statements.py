"""Statements: a write as a value, to be run on a connection that the engine did not make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Protocol, TypeVar

import msgspec

__all__ = ["Enlisted", "Statement", "Statements", "walk", "walk_async"]

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
