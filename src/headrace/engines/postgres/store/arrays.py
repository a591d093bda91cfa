"""Arrays as texts, which statements cast and unnest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headrace.engines.sql.encoding import encode

__all__ = ["columns", "literal", "literal_of_texts"]

_SPECIAL, _ESCAPED = re.compile(r'["\\]'), r"\\\g<0>"


def columns(rows: Sequence[tuple[Any, ...]], texts: frozenset[int], alike: frozenset[int] = frozenset()) -> list[Any]:
    """Return rows, at least one, as an array for each column, each as a text; ``texts``: indexes of text columns.

    Encoding arrays element by element, as the driver would, takes several times as long as all the rest. ``alike``:
    indexes of columns, never null, that often have the same value in all rows. That value follows behind the arrays, in
    place of its array; None if the rows differ.
    """
    arrays, values = list[Any](), list[Any]()
    for place, column in enumerate(zip(*rows, strict=True)):
        if place in alike:
            same = column.count(column[0]) == len(column)
            values.append(column[0] if same else None)
            if same:
                arrays.append(None)
                continue
        arrays.append(literal_of_texts(column) if place in texts else literal(column))
    return arrays + values


def literal(values: Sequence[Any]) -> str:
    """Return numbers, ids or words as the text of an array: PostgreSQL differs from JSON only in the brackets."""
    return f"{{{encode(values)[1:-1]}}}"


def literal_of_texts(values: Sequence[str | None]) -> str | None:
    """Return texts as the text of an array; None, which is unnested as as many nulls, if all of them are None."""
    if values.count(None) == len(values):
        return None
    text = encode(values)
    if "\\" in text:
        # JSON escapes quotes and backslashes as PostgreSQL does, but other characters differently. Those do not occur
        # in texts that are JSON themselves.
        rest = text.replace("\\\\", "")
        if rest.count("\\") != rest.count('\\"'):
            quoted = ("null" if one is None else f'"{_SPECIAL.sub(_ESCAPED, one)}"' for one in values)
            return f"{{{','.join(quoted)}}}"
    return f"{{{text[1:-1]}}}"
