"""Books: what is found of them, and how much of it is told."""

from __future__ import annotations

import pytest

from headrace.core.query import Ledger
from headrace.core.stats.verification import BOOKS, MAX_FINDINGS, Invariant, Mismatch, ledger_book


@pytest.mark.parametrize(
    ("ledger", "what"),
    [
        (Ledger.of(6, 1, (2, 0, 0), 3, (1, 1, 1)), None),
        (Ledger.of(6, 1, (2, 0, 0), 3, (0, 0, 0)), None),  # an earlier version did not count by kind
        (Ledger.of(7, 1, (2, 0, 0), 3, (1, 1, 1)), "1 jobs are missing"),
        (Ledger.of(5, 1, (2, 0, 0), 3, (1, 1, 1)), "there are 1 jobs more"),
        (Ledger.of(6, 1, (2, 0, 0), 3, (4, 0, 0)), "3 jobs were pruned, but 4 by how they ended"),
    ],
)
def test_the_ledger(ledger: Ledger, what: str | None) -> None:
    book = ledger_book(ledger)
    assert book.wrong == (what is not None)
    assert what is None or what in book.findings[0].what


def test_all_findings_are_counted_and_the_first_are_told() -> None:
    book = Invariant.of("keys", 100, [Mismatch(str(n)) for n in range(50)])
    assert (book.holds, book.wrong, len(book.findings)) == (BOOKS["keys"], 50, MAX_FINDINGS)
    assert Invariant.of("keys", 100, [Mismatch("a")], wrong=70).wrong == 70
