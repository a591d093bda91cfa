"""``verify``: it says what does not agree, and that by its exit code as well."""

from __future__ import annotations

import sqlite3

from headrace.core.stats.verification import BOOKS
from tests.cli.conftest import Shell


def test_books_that_agree(shell: Shell) -> None:
    shell.submit("add", "a=1")
    shell.work()
    found = shell.json("verify", "--url", shell.url)
    assert (found["ok"], [book["name"] for book in found["books"]]) == (True, list(BOOKS))
    text = shell("verify", "--url", shell.url).stdout
    assert "✓ ledger" in text
    assert "all books agree with the jobs" in text


def test_books_that_do_not_agree(shell: Shell) -> None:
    id = shell.submit("add", "a=1", "--dedup", "one")
    with sqlite3.connect(shell.folder / "jobs.db") as connection:
        connection.execute("UPDATE jobs SET held_key = NULL")
        connection.execute("UPDATE books SET accepted = 3")
        connection.execute("INSERT INTO bodies (seq, payload, spec) VALUES (77, '{}', '{}')")
    connection.close()
    found = {book["name"]: book for book in shell.json("verify", "--url", shell.url, code=1)["books"]}
    assert {name for name, book in found.items() if book["wrong"]} == {"ledger", "keys", "parts"}
    assert [one["about"] for one in found["keys"]["findings"]] == [id]
    text = shell("verify", "--url", shell.url, code=1).stdout
    assert "✗ ledger" in text
    assert "2 jobs are missing: 3 were submitted" in text
    assert f"{id}: it is live, and does not hold its dedup key" in text
    assert "order number 77: a payload of a job that is gone" in text
    assert "Keep a copy of the store, and report it" in text
