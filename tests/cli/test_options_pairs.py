"""Arguments of a task as typed in a terminal."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click
import pytest

from headrace.cli.options import pairs, payload, value


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("320", 320),
        ("1.5", 1.5),
        ("true", True),
        ("null", None),
        ('"320"', "320"),
        ("cat.png", "cat.png"),
        ('["a", 1]', ["a", 1]),
        ("", ""),
        ("NaN", "NaN"),
        ("{broken", "{broken"),
    ],
)
def test_a_value_is_json_if_it_parses_else_text(text: str, meant: Any) -> None:
    assert value(text) == meant


def test_only_the_first_equals_sign_divides() -> None:
    assert pairs(["query=a=b"]) == {"query": "a=b"}


@pytest.mark.parametrize(
    ("words", "said"), [(["width"], "not key=value"), (["=3"], "not key"), (["a=1", "a=2"], "twice")]
)
def test_what_is_no_pair_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        pairs(words)


def test_pairs_are_laid_over_the_payload(tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"a": 1, "b": 2}')
    assert payload(f"@{file}", ["b=3"]) == {"a": 1, "b": 3}
    assert payload('{"a": 1}', []) == {"a": 1}
    assert payload(None, []) == {}


def test_a_payload_may_come_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"a": [1]}'))
    assert payload("-", []) == {"a": [1]}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{", "--payload is not JSON"),
        ("[1]", "must be a JSON object"),
        ("@/no/such", "cannot read"),
        ('{"a":NaN}', "NaN"),
    ],
)
def test_a_bad_payload_is_refused_by_name(source: str, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        payload(source, [])
