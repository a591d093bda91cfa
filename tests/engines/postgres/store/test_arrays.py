"""Texts of arrays: whatever is in them comes out as it went in."""

from __future__ import annotations

import asyncpg
import pytest

from headrace.engines.postgres.store.arrays import columns, literal, literal_of_texts
from tests.support.servers.postgres import shared

TEXTS = [
    "plain",
    "",
    "null",
    "NULL",
    "{a,b}",
    'say "hi"',
    "back\\slash",
    "\\n is no newline",
    "a\nnewline\tand\rothers\x07",
    "ends with \\",
    '\\"',
    "naïve ☕ 𝄞",
    " spaces ",
    "comma, comma",
    '{"n":1,"s":"a \\"b\\" \\\\ c"}',
    None,
]


async def read(text: str | None) -> list[str | None]:
    connection = await asyncpg.connect(shared().url())
    try:
        return [row[0] for row in await connection.fetch("SELECT * FROM unnest($1::text::text[])", text)]
    finally:
        await connection.close()


async def test_every_text_alone_and_all_together() -> None:
    for text in TEXTS[:-1]:
        assert await read(literal_of_texts([text])) == [text]
    assert await read(literal_of_texts(TEXTS)) == TEXTS


async def test_none_but_nulls_are_no_array() -> None:
    assert literal_of_texts([None, None]) is None
    assert literal_of_texts(["", None]) is not None


@pytest.mark.parametrize("values", [[1, -2, None], [True, False, None]])
async def test_numbers(values: list[object]) -> None:
    kind = "boolean" if isinstance(values[0], bool) else "bigint"
    connection = await asyncpg.connect(shared().url())
    try:
        rows = await connection.fetch(f"SELECT * FROM unnest($1::text::{kind}[])", literal(values))
    finally:
        await connection.close()
    assert [row[0] for row in rows] == values


def test_columns_of_rows() -> None:
    assert columns([(1, "a"), (2, None)], frozenset({1})) == ["{1,2}", '{"a",null}']


def test_a_column_that_is_the_same_in_all_rows_is_passed_once() -> None:
    rows = [(1, 7, "a", "x"), (2, 7, "b", "x")]
    assert columns(rows, frozenset({2, 3}), frozenset({1, 2, 3})) == ["{1,2}", None, '{"a","b"}', None, 7, None, "x"]
