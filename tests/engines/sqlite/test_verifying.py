"""Books that somebody broke by hand are found, each by its own finding."""

from __future__ import annotations

import re

import apsw
import pytest

from headrace.conformance.lab import Lab
from headrace.core.stats.verification import BOOKS
from headrace.core.status import ENDED
from headrace.engines.sqlite import SqliteEngine
from headrace.engines.sqlite.records import Records
from tests.support.broken_books import BREAKS, books, furnish

_WORDS = {"true": "1", "false": "0", "seq_of_live": "(SELECT seq FROM jobs WHERE held_key IS NOT NULL)"}


async def write(lab: Lab, statement: str) -> None:
    engine = lab.engine
    assert isinstance(engine, SqliteEngine)

    def act(connection: apsw.Connection) -> None:
        connection.execute(re.sub(r"\{(\w+)\}", lambda found: _WORDS.get(found[1], found[1]), statement))

    await engine._writer.run(act)


async def test_each_book_is_found_broken(lab: Lab) -> None:
    await furnish(lab)
    assert [book for book in (await books(lab)).values() if book.wrong] == []
    assert isinstance(lab.engine, SqliteEngine)
    # On the connection that has the transaction: nobody else sees it.
    records = Records(lab.engine._writer, lab.engine._writer)
    for name, statement, what in BREAKS:
        await write(lab, f"SAVEPOINT broken; {statement}")
        found = await records.verify(name, lab.now)
        await write(lab, "ROLLBACK TO broken; RELEASE broken")
        assert found.wrong >= len(found.findings) > 0, (name, statement)
        assert what in " ".join(finding.what for finding in found.findings), (statement, found)
    assert {name for name, _, _ in BREAKS} == BOOKS.keys() - {"ledger"}


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE books SET accepted = accepted + 1", "1 jobs are missing"),
        ("UPDATE books SET accepted = accepted - 1", "there are 1 jobs more than were submitted"),
        ("UPDATE books SET pruned_failed = 5", "but 6 by how they ended"),
        ("DELETE FROM jobs WHERE status = 'queued'", "jobs are missing"),
    ],
)
async def test_a_ledger_that_does_not_balance_is_found(lab: Lab, statement: str, what: str) -> None:
    await furnish(lab)
    await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now), 1)
    assert not (await books(lab))["ledger"].wrong
    await write(lab, statement)
    [finding] = (await books(lab))["ledger"].findings
    assert what in finding.what


async def test_the_first_findings_are_told_and_all_are_counted(lab: Lab) -> None:
    for n in range(30):
        await lab.put(f"t{n}", dedup="d")
    await write(lab, "UPDATE jobs SET held_key = NULL")
    found = (await books(lab))["keys"]
    assert (found.checked, found.wrong, len(found.findings)) == (30, 30, 10)


async def test_what_an_earlier_version_pruned_is_of_no_known_kind(lab: Lab) -> None:
    await furnish(lab)
    await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now))
    await write(lab, "UPDATE books SET pruned_completed = 0")  # as if that version had not counted it
    ledger = await lab.engine.records.ledger()
    assert (ledger.pruned, ledger.completed, ledger.pruned_cancelled, ledger.pruned_unknown) == (2, 0, 1, 1)
    assert not (await books(lab))["ledger"].wrong
