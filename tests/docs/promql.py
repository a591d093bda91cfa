"""As much of PromQL as it takes to know which metrics and labels a query is about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'[^']*') | (?P<span>\[[^\]]*\]) | (?P<word>[A-Za-z_:][\w:]*)
    | (?P<number>\d[\w.]*) | (?P<sign>=~|!~|!=|==|<=|>=|[{}(),=<>+*/^%-]) | (?P<space>\s+)""",
    re.VERBOSE,
)
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}


@dataclass
class Query:
    """What a query is about."""

    metrics: set[str] = field(default_factory=set)
    matched: set[tuple[str, str, str]] = field(default_factory=set)
    """Metric, label, and what it must be."""
    grouped: set[str] = field(default_factory=set)
    """Labels by which results are grouped or joined."""


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None, f"not understood: {text[at:]!r}"
        at = found.end()
        if (kind := found.lastgroup) not in ("space", "span", None):
            yield str(kind), found[0]


def read(text: str) -> Query:
    """The metrics, matchers and groupings of a query."""
    query, tokens = Query(), [*_tokens(text), ("end", "")]
    at = 0
    while at < len(tokens):
        kind, word = tokens[at]
        at += 1
        following = tokens[at][1] if at < len(tokens) else ""
        if kind != "word" or word in _WORDS:
            continue
        if word in _GROUPING and following != "(":
            continue  # group_left, which may name nothing
        if word in _GROUPING:
            end = tokens.index(("sign", ")"), at)
            query.grouped |= {label for kind, label in tokens[at:end] if kind == "word"}
            at = end + 1
        elif following == "{":
            end = tokens.index(("sign", "}"), at)
            inside = [one for one in tokens[at + 1 : end] if one[1] != ","]
            for (_, label), _, (_, wanted) in zip(inside[::3], inside[1::3], inside[2::3], strict=True):
                query.matched.add((word, label, wanted[1:-1]))
            query.metrics.add(word)
            at = end + 1
        elif following != "(" and following not in _GROUPING:
            query.metrics.add(word)
    return query
