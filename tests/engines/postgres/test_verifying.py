"""Books that somebody broke by hand are found, each by its own finding."""

from __future__ import annotations

import re
from typing import cast

from headrace.conformance.lab import Lab
from headrace.core.status import ENDED
from headrace.engines.postgres.records import Records
from headrace.engines.postgres.store.pool import Pool
from tests.engines.postgres.conftest import Connect
from tests.support.broken_books import BREAKS, books, furnish

_TABLES = (
    "bodies",
    "attempts",
    "events",
    "labels",
    "waits",
    "jobs",
    "profiles",
    "heads",
    "workers",
    "batches",
    "queues",
)


async def test_each_book_is_found_broken(lab: Lab, schema: str, connect: Connect) -> None:
    await furnish(lab)
    assert [book for book in (await books(lab)).values() if book.wrong] == []
    connection = await connect()
    words = {name: f"{schema}.{name}" for name in _TABLES} | {"true": "true", "false": "false"}
    words["seq_of_live"] = f"(SELECT seq FROM {schema}.jobs WHERE held_key IS NOT NULL)"

    class Within:
        """The connection that has the transaction, in place of the pools: nobody else sees it."""

        async def fetch(self, text: str, *args: object) -> list[object]:
            return list(await connection.fetch(text, *args))

    records = Records(cast("Pool", Within()), cast("Pool", Within()), schema)
    for name, statement, what in BREAKS:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(re.sub(r"\{(\w+)\}", lambda found: words[found[1]], statement))
        found = await records.verify(name, lab.now)
        await transaction.rollback()
        assert found.wrong >= len(found.findings) > 0, (name, statement)
        assert what in " ".join(finding.what for finding in found.findings), (statement, found)
    assert [book for book in (await books(lab)).values() if book.wrong] == []


async def test_a_ledger_that_does_not_balance_is_found(lab: Lab, schema: str, connect: Connect) -> None:
    await furnish(lab)
    connection = await connect()
    for statement, what in (
        ("INSERT INTO {0}.ledger VALUES (1, 0)", "1 jobs are missing"),
        ("INSERT INTO {0}.ledger VALUES (-2, 0)", "there are 1 jobs more than were submitted"),
        ("INSERT INTO {0}.ledger VALUES (1, 0); INSERT INTO {0}.pruned VALUES (0, 5, 0)", "0 jobs were pruned, but 5"),
    ):
        await connection.execute(statement.format(schema))
        [finding] = (await books(lab))["ledger"].findings
        assert what in finding.what


async def test_what_an_earlier_version_pruned_is_of_no_known_kind(lab: Lab, schema: str, connect: Connect) -> None:
    await furnish(lab)
    await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now))
    await (await connect()).execute(f"UPDATE {schema}.pruned SET completed = 0")  # as if that had not counted it
    ledger = await lab.engine.records.ledger()
    assert (ledger.pruned, ledger.completed, ledger.pruned_cancelled, ledger.pruned_unknown) == (2, 0, 1, 1)
    assert not (await books(lab))["ledger"].wrong


async def test_jobs_of_a_key_that_arrived_before_its_last_turn_are_at_one_place(lab: Lab) -> None:
    """The first of them left by an act, and the next has a lower order number: nothing is wrong with that."""
    await lab.engine.documents.put_setting("limit:work", '{"max_per_key":1}', 0)
    worker = await lab.worker()
    await lab.put(concurrency_key="k", delay=15)
    lab.later(10)
    first = await lab.put(concurrency_key="k")
    lab.later(6)
    await lab.engine.jobs.promote(lab.now)
    lab.later(4)
    await lab.put(concurrency_key="k", priority=99)
    assert [job.priority for job in await lab.claim(worker, 1)] == [99]
    await lab.cancel(first)
    assert (await lab.engine.records.verify("turns")).wrong == 0
