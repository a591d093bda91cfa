"""Queries for jobs as values, and what differs between the engines."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

__all__ = ["Asked", "Asking", "Dialect", "Part"]

T = TypeVar("T")

Asked = tuple[str, list[Any]]
"""SQL with a question mark for each of these values."""
Asking = Generator[Asked, list[Any], T]
"""A query as a value: yields statements, is sent the rows of each, and returns the result."""


class Part(NamedTuple):
    """Candidates: rows of a table ``x`` that has order numbers. Those of one list of parts have no job in common."""

    table: str
    where: str
    values: Sequence[Any] = ()
    ordered: bool = False
    """Whether an index has them in the order of their numbers."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between the engines. In SQL, ``j`` is a job and ``b`` its body."""

    prefix: str
    """Before the name of each table."""
    subqueue_shift: int
    """The size of a block in the list of subqueues, as a power of two."""
    time_shift: int
    state: str
    """A field of the state as text; ``{}`` is its number."""
    created: str
    """When the job was created."""
    error_type: str
    """Of the job of this order number: ``j`` may be anything that has one."""
    page: str
    """The statement for the records of the jobs that ``{found}`` selects, newest first."""
    body: str
    """The SQL that joins the body."""
    join: str
    """The SQL that joins candidates with jobs, in this order."""
    number: str
    """The SQL that makes a number of a field of the state."""
    all_of_them: str
    """Follows a selection that must not be merged with the SQL around it."""
    task: str
    """Of the job in this subqueue: ``j`` may be anything that has one."""
    has_error: str
    by_status: frozenset[int]
    """The stages that have an index by status in the order of numbers."""
    by_number: str
    """The table of jobs, read by their numbers."""
    blocks_of_subqueues: str
    """The statement for the blocks of subqueues, the last ones first: which subqueues, below which block, how many."""
    ranges: str
    """The tables for jobs in ranges of order numbers, which are one value, a list of pairs."""
