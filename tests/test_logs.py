"""Records as JSON lines, whatever they hold."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from headrace.logs import FIELDS, JobFields, JsonFormatter, TextFormatter, make_printable
from tests.support.hostile import WICKED, raw_in


def record(message: str = "said", *args: object, **said: Any) -> logging.LogRecord:
    """A record as a logger makes it, with this as ``extra``."""
    made = logging.LogRecord("shop", logging.WARNING, __file__, 1, message, args, said.pop("exc_info", None))
    made.__dict__.update(said)
    return made


def parsed(one: logging.LogRecord) -> dict[str, Any]:
    text = JsonFormatter().format(one)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_record_is_one_object() -> None:
    one = record("selling %s\nand more", "tea", order=7)
    found = parsed(one)
    assert datetime.fromisoformat(found.pop("time")).timestamp() == pytest.approx(one.created, abs=1e-5)
    assert found == {
        "level": "WARNING",
        "logger": "shop",
        "message": "selling tea\nand more",
        "pid": one.process,
        "order": 7,
    }


def test_an_error_has_its_traceback() -> None:
    try:
        raise ValueError("no till")
    except ValueError:
        found = parsed(record("trouble", exc_info=sys.exc_info()))
    assert found["message"] == "trouble"
    assert found["exception"].startswith("Traceback (most recent call last)")
    assert found["exception"].endswith("ValueError: no till")
    assert "exception" not in parsed(record(exc_info=(None, None, None)))
    assert parsed(record(exc_text="sent by another process"))["exception"] == "sent by another process"
    assert parsed(record(stack_info="Stack (most recent call last):\n  here"))["stack"].endswith("here")


class Sly:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def circle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": [1, None]}, {"a": [1, None]}),
        (object, "<class 'object'>"),
        (Sly(), "<Sly that cannot be shown: RuntimeError>"),
        (circle(), "[[...]]"),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        ({None: circle()}, "{None: [[...]]}"),
        ("half \ud83d", "half ?"),
        (10**30, 10**30),
        ({1, 2}, [1, 2]),
        (b"\xff", "/w=="),
        (float("nan"), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_was_passed_is_shown_somehow(value: Any, shown: Any) -> None:
    found = parsed(record("said", odd=value, kept=1))
    assert (found["message"], found["odd"], found["kept"]) == ("said", shown, 1)


def test_a_message_that_cannot_be_made_is_shown_as_written() -> None:
    assert parsed(record("%d of %d", 1))["message"] == "%d of %d (1,)"
    assert parsed(record("half \ud83d"))["message"] == "half ?"
    odd = record()
    odd.msg = Sly()
    assert parsed(odd)["message"] == "<Sly that cannot be shown: RuntimeError>"


class Table:
    """What cannot be compared as a whole, like tables of numbers."""

    def __ne__(self, other: object) -> bool:
        raise ValueError("of which row?")

    __eq__ = __ne__
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<a table>"


def test_what_cannot_be_compared_may_stand_where_a_job_would() -> None:
    assert parsed(record(task=Table()))["task"] == "<a table>"


def test_names_that_are_taken_are_told_apart() -> None:
    found = parsed(record(level="mine", time=1, pid="p", logger="l", exception="e"))
    assert (found["level"], found["extra_level"], found["extra_time"], found["extra_pid"]) == (
        "WARNING",
        "mine",
        1,
        "p",
    )
    assert (found["logger"], found["extra_logger"], found["exception"]) == ("shop", "l", "e")


def test_a_format_may_name_the_job_of_every_record() -> None:
    text = logging.Formatter("%(task)s %(job_id)s %(attempt)s %(queue)s %(worker)s %(message)s")
    outside, inside = record(), record(job_id="1", task="sell", attempt=2, queue="q", worker="w")
    fields = JobFields()
    assert fields.filter(outside)
    assert fields.filter(inside)
    assert text.format(outside) == "- - - - - said"
    assert text.format(inside) == "sell 1 2 q w said"
    assert parsed(outside).keys().isdisjoint(FIELDS)
    assert {name: parsed(inside)[name] for name in FIELDS}["attempt"] == 2


def test_text_names_the_job() -> None:
    inside = TextFormatter().format(record("no till", job_id="0000-12345678", task="sell"))
    assert inside.endswith(" warning: sell 12345678: no till")
    assert TextFormatter().format(record("no till")).endswith(" warning: no till")
    try:
        raise ValueError("empty")
    except ValueError:
        text = TextFormatter().format(record("trouble", exc_info=sys.exc_info()))
    assert text.endswith("ValueError: empty")


def hostile_cause() -> None:
    try:
        raise ValueError(WICKED)
    except ValueError as error:
        raise RuntimeError("clean") from error


def hostile_context() -> None:
    try:
        raise ValueError(WICKED)
    except ValueError:
        raise RuntimeError("clean")  # noqa: B904  # what it came of is not said


def hostile_note() -> None:
    error = RuntimeError("clean")
    error.add_note(WICKED)
    raise error


def hostile_member() -> None:
    raise ExceptionGroup("clean", [ValueError(WICKED)])


@pytest.mark.parametrize("raises", [hostile_cause, hostile_context, hostile_note, hostile_member])
def test_a_traceback_is_printable_whatever_it_is_of(raises: Callable[[], None]) -> None:
    try:
        raises()
    except Exception:
        one = record("boom", exc_info=sys.exc_info(), stack_info=f"Stack:\n  {WICKED}")
    plain = logging.Formatter("%(levelname)s %(message)s")
    make_printable(one)
    assert list(raw_in(plain.format(one))) == []
    one.stack_info = None
    first, *others = plain.format(one).splitlines()
    assert first == "WARNING boom"
    assert all(line.startswith("    ") for line in others)
    assert any("clean" in line for line in others)
    assert any("forged" in line for line in others)
    assert parsed(one)["exception"].lstrip("+ ").startswith(("Traceback", "Exception Group Traceback"))
