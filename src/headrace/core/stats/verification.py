"""Invariants that ``headrace verify`` checks: what a store keeps twice, for speed or as a total, must agree."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.core.codec.record import Record
from headrace.core.query import Ledger

__all__ = ["BOOKS", "MAX_FINDINGS", "Invariant", "Mismatch", "Verification", "ledger_book"]

BOOKS: dict[str, str] = {
    "ledger": "every job that was ever submitted is live, ended or pruned; pruned jobs are counted by how they ended",
    "parts": "every job has its payload, and nothing is kept of a job that is gone",
    "keys": "live jobs hold their dedup keys, unless they were replaced while running; of the ended, only for a period",
    "lines": "every job stands where claims look for jobs of its status, task and requirements",
    "turns": "the first job in line of each concurrency key is where claims look for it",
    "held": "every job that is held belongs to a worker that is known",
    "attempts": "every attempt that is over is on record",
    "waits": "every job that waits will hear of it when the last job that it waits for ends",
    "batches": "every batch counts as many jobs, by how they ended, as belong to it",
    "messages": "every message that a job has told of is there, by its number, unless it is old enough to be pruned",
    "settings": "priorities and pauses of queues are, for claims, what the settings say",
}
"""The invariants by name, each with what must hold. An engine that stores something once has nothing to compare."""

MAX_FINDINGS = 10
"""How many mismatches of an invariant are listed; all are counted."""


class Mismatch(msgspec.Struct, Record, frozen=True):
    """Something that does not agree."""

    what: str
    about: str | None = None
    """The id of the job or batch, or the name of the queue or key; ``#`` and the order number of a job that is gone."""


class Invariant(msgspec.Struct, Record, frozen=True):
    """One invariant, checked as of one moment."""

    name: str
    holds: str
    """What must hold."""
    checked: int
    """How many rows were compared."""
    wrong: int = 0
    """How many of them do not agree."""
    findings: tuple[Mismatch, ...] = ()
    """The first of those."""

    @classmethod
    def of(cls, name: str, checked: int, findings: Iterable[Mismatch] = (), wrong: int | None = None) -> Invariant:
        """Return the invariant of this name; ``wrong``: how many mismatches there are, if not all are given."""
        found = tuple(findings)
        return cls(name, BOOKS[name], checked, len(found) if wrong is None else wrong, found[:MAX_FINDINGS])


class Verification(msgspec.Struct, Record, frozen=True):
    """The result of checking all invariants."""

    ok: bool
    books: tuple[Invariant, ...]


def ledger_book(ledger: Ledger) -> Invariant:
    """Return the invariant ``ledger``."""
    found = list[Mismatch]()
    if ledger.unaccounted > 0:
        found.append(Mismatch(f"{ledger.unaccounted} jobs are missing: {ledger.accepted} were submitted"))
    elif ledger.unaccounted < 0:
        found.append(Mismatch(f"there are {-ledger.unaccounted} jobs more than were submitted ({ledger.accepted})"))
    if ledger.pruned_unknown < 0:
        by_kind = ledger.pruned - ledger.pruned_unknown
        found.append(Mismatch(f"{ledger.pruned} jobs were pruned, but {by_kind} by how they ended"))
    return Invariant.of("ledger", ledger.accepted, found)
