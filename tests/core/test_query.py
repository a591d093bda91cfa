"""Filters, and how a due job is shown."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from headrace.core.query import Filter, Ledger, as_seen, cursor_of, matches, seen_status
from headrace.core.status import DEFERRED, Status
from headrace.errors import ConfigError
from tests.core.stand import NOW, OOPS, at, stand, submitted


@pytest.mark.parametrize("status", sorted(Status))
def test_only_deferred_jobs_that_are_due_are_shown_otherwise(status: Status) -> None:
    job = stand(status)
    assert as_seen(job, NOW) == job
    late = as_seen(job, at(1e6))
    if status in DEFERRED:
        assert late == replace(job, status=Status.QUEUED, arrived_at=job.available_at)
        assert seen_status(job, job.available_at) is Status.QUEUED
    else:
        assert late == job


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, True),
        ({"status": frozenset({Status.QUEUED, Status.FAILED})}, True),
        ({"status": frozenset({Status.FAILED})}, False),
        ({"task": frozenset({"mail", "other"})}, True),
        ({"task": frozenset({"mai"})}, False),
        ({"queue": frozenset({"q"})}, True),
        ({"queue": frozenset({"default"})}, False),
        ({"tag": "b"}, True),
        ({"tag": "a,b"}, False),
        ({"schedule": "nightly"}, True),
        ({"schedule": "daily"}, False),
        ({"text": "MAIL"}, True),
        ({"text": '"N":1'}, True),
        ({"text": "01890000-0000-7000"}, True),
        ({"text": "oops"}, True),
        ({"text": "IT BROKE"}, True),
        ({"text": "trace"}, False),
        ({"text": ""}, True),
        ({"task": frozenset({"mail"}), "queue": frozenset({"q"}), "tag": "a", "text": "mail"}, True),
        ({"task": frozenset({"mail"}), "queue": frozenset({"q"}), "tag": "a", "text": "nope"}, False),
    ],
)
def test_every_given_field_must_match(fields: dict[str, Any], found: bool) -> None:
    job = submitted(task="mail", queue="q", tags=("a", "b"), schedule="nightly")
    job = replace(job, error=replace(OOPS, traceback="trace"))
    assert matches(job, Filter(**fields), NOW) is found


def test_a_filter_sees_what_a_view_shows() -> None:
    job = submitted(delay=5)
    queued = Filter(status=frozenset({Status.QUEUED}))
    assert not matches(job, queued, at(4.9))
    assert matches(job, queued, at(5))
    assert not matches(job, Filter(status=frozenset({Status.SCHEDULED})), at(5))


def test_the_books_balance_or_say_by_how_much_not() -> None:
    assert Ledger(10, 4, 5, 1).unaccounted == 0
    assert Ledger(10, 4, 4, 1).unaccounted == 1


def test_cursors_are_order_numbers() -> None:
    assert cursor_of(None) is None
    assert cursor_of("12") == 12
    for bad in ("", "x", "1.5"):
        with pytest.raises(ConfigError, match="cursor"):
            cursor_of(bad)
