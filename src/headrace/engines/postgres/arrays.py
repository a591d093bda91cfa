"""Columns of values as the texts of arrays, which statements unnest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.engines.record import encode

__all__ = ["columns", "literal", "literal_of_texts"]

_encode = msgspec.json.Encoder().encode
_SPECIAL, _ESCAPED = re.compile(r'["\\]'), r"\\\g<0>"


def columns(rows: Sequence[tuple[Any, ...]], texts: frozenset[int]) -> list[Any]:
    """Rows, at least one, as the arrays a statement unnests, each as the text of an array; ``texts`` are the columns of
    text. The driver looks at each element of an array of its own, several times as long as all the rest takes.
    """
    return [
        literal_of_texts(column) if place in texts else literal(column)
        for place, column in enumerate(zip(*rows, strict=True))
    ]


def literal(values: Sequence[Any]) -> str:
    """Numbers, ids or words as the text of an array, which JSON spells as PostgreSQL does, but for the brackets."""
    return f"{{{_encode(values)[1:-1].decode()}}}"


def literal_of_texts(values: Sequence[str | None]) -> str | None:
    """Texts as the text of an array; None, which is unnested as just as many nulls, if all of them are."""
    if values.count(None) == len(values):
        return None
    text = encode(values)
    if "\\" in text:
        # JSON escapes quotes and backslashes as PostgreSQL does; what it escapes otherwise, no JSON has in it.
        rest = text.replace("\\\\", "")
        if rest.count("\\") != rest.count('\\"'):
            quoted = ("null" if one is None else f'"{_SPECIAL.sub(_ESCAPED, one)}"' for one in values)
            return f"{{{','.join(quoted)}}}"
    return f"{{{text[1:-1]}}}"
