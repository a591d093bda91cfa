"""Comparing the books: a store is in order if every one of them is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from headrace.core.stats.verification import BOOKS, Invariant, Mismatch
from tests.support.apps import Sums, url_of
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import schema_of

pytestmark = pytest.mark.every_engine


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_ledger_that_does_not_balance_is_enough(engine: str, tmp_path: Path) -> None:
    sums = Sums(url_of(engine, tmp_path))
    async with sums.app:
        await sums.add.submit(1, 2)
        assert (await sums.app.store.verify()).ok
        if engine == "sqlite":
            apsw.Connection(str(tmp_path / "jobs.db")).execute("UPDATE books SET accepted = accepted + 1")
        else:
            shared().execute(f'INSERT INTO "{schema_of(tmp_path)}".ledger VALUES (1, 0)')
        found = await sums.app.store.verify()
        assert [book.name for book in found.books if book.wrong] == ["ledger"]
        assert not found.ok


@pytest.mark.parametrize("name", BOOKS)
async def test_one_book_that_is_wrong_is_enough(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = Sums(url_of("memory", tmp_path))
    async with sums.app:
        records = sums.app.session.engine.records
        real, told = records.verify, list[Invariant]()

        async def verify(book: str, *args: Any) -> Invariant:
            return Invariant.of(book, 1, [Mismatch("it is wrong")]) if book == name else await real(book, *args)

        monkeypatch.setattr(records, "verify", verify)
        found = await sums.app.store.verify(each=told.append)
        assert (found.ok, [book.name for book in found.books if book.wrong]) == (False, [name])
        assert tuple(told) == found.books
        assert [book.name for book in told] == list(BOOKS)
