"""Filters, and how a due job is shown."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.core.query import Filter, Ledger, as_seen, cursor_of, matches, seen_status
from headrace.core.status import DEFERRED, Reason, Status
from headrace.errors import ConfigError
from tests.core.stand import ID, NOW, OOPS, WORKER, at, stand, submitted


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


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"reason": frozenset({Reason.TIMEOUT, Reason.LOST})}, True),
        ({"reason": frozenset({Reason.USER})}, False),
        ({"customer": frozenset({"ann", "bob"})}, True),
        ({"customer": frozenset({"bob"})}, False),
        ({"rerun_of": ID}, True),
        ({"rerun_of": UUID(int=1)}, False),
        ({"fingerprint": frozenset({"abc"})}, True),
        ({"fingerprint": frozenset({"ab"})}, False),
        ({"worker": frozenset({WORKER})}, False),
        ({"created_after": NOW}, True),
        ({"created_after": at(1)}, False),
        ({"created_before": NOW}, False),
        ({"created_before": at(1)}, True),
        ({"finished_after": at(5), "finished_before": at(6)}, True),
        ({"finished_after": at(5.1)}, False),
        ({"finished_before": at(5)}, False),
    ],
)
def test_what_became_of_a_job_is_asked_for(fields: dict[str, Any], found: bool) -> None:
    job = submitted(customer="ann", rerun_of=ID)
    job = replace(job, status=Status.FAILED, reason=Reason.TIMEOUT, fingerprint="abc", finished_at=at(5))
    assert matches(job, Filter(**fields), NOW) is found


def test_a_range_of_ends_finds_nothing_that_is_live_and_a_worker_only_what_it_has() -> None:
    job = stand(Status.RUNNING)
    assert not matches(job, Filter(finished_before=at(1e9)), NOW)
    assert matches(job, Filter(worker=frozenset({WORKER})), NOW)


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
