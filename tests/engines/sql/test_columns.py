"""Row formats: every field of a job is kept by both SQL engines, and what a new job has in it is told apart."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from types import ModuleType
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from headrace.core.attempt import ErrorInfo, Progress, Streak
from headrace.core.job import Job, Spec
from headrace.core.status import Outcome, Reason, Status
from headrace.core.webhooks.target import Notified
from headrace.engines.postgres.jobs import columns as postgres
from headrace.engines.postgres.jobs import rows as postgres_rows
from headrace.engines.sql.columns import CUT_OFF, Column, fields_in, state_of
from headrace.engines.sql.encoding import Micros, State
from headrace.engines.sqlite.jobs import columns as sqlite
from headrace.engines.sqlite.jobs import rows as sqlite_rows

NOW = datetime(2030, 1, 2, tzinfo=UTC)
JOB = Job(
    id=UUID(int=1),
    spec=Spec(task="t", created_at=NOW),
    payload_text="{}",
    status=Status.QUEUED,
    available_at=NOW,
    arrived_at=NOW,
    updated_at=NOW,
)
ENGINES = [pytest.param(sqlite, id="sqlite"), pytest.param(postgres, id="postgres")]
FOUND_OTHERWISE = {"seq", "id", "spec", "payload_text"}
"""What no change writes: the first two say which job it is, the others never change."""


def arguments(columns: Iterable[Column]) -> set[str]:
    """The fields of a job that are made of these columns."""
    return {name for column in columns for name in re.findall(r"(\w+)=", column.read)}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_field_of_a_job_is_read(engine: ModuleType) -> None:
    assert arguments(engine.JOB) == set(Job.__struct_fields__)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_field_that_may_change_is_written_with_a_change(engine: ModuleType) -> None:
    written = set(re.findall(r"\bjob\.(\w+)", " ".join(column.changed for column in engine.JOB)))
    assert written | set(State.__struct_fields__) | FOUND_OTHERWISE >= set(Job.__struct_fields__)


def test_a_claimed_row_of_postgres_has_what_the_grant_does_not_say() -> None:
    given = {column.given for column in postgres.RECORD if column.given}
    assert all("given." in one or "assigned_at" in one for one in given)
    assert "payload" in [column.name for column in postgres.CLAIMED]
    assert not {"worker", "claim", "act_by"} & {column.name for column in postgres.CLAIMED}


@pytest.mark.parametrize("rows", [sqlite_rows, postgres_rows], ids=["sqlite", "postgres"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rev", 2),
        ("epoch", 1),
        ("attempt", 1),
        ("redrives", 1),
        ("worker", UUID(int=2)),
        ("started_at", NOW),
        ("finished_at", NOW),
        ("reason", Reason.USER),
        ("progress", Progress(0.5)),
        ("result_text", "1"),
        ("error", ErrorInfo("E", "e")),
    ],
)
def test_a_job_that_brings_more_along_than_an_insert_writes_is_not_new(
    rows: ModuleType, field: str, value: Any
) -> None:
    assert rows.is_new(JOB)
    assert not rows.is_new(replace(JOB, **{field: value}))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_insert_writes_is_that_of_a_new_job(engine: ModuleType) -> None:
    assert {"id", "spec", "payload_text", "status", "waits", "not_after", "act_by"} <= set(fields_in(engine.NEW))


STATES: dict[str, Any] = {
    "attempt": 2,
    "charged": 1,
    "redrives": 1,
    "waits": 3,
    "not_after": NOW,
    "started_at": NOW,
    "first_started_at": NOW,
    "reason": Reason.USER,
    "streak": Streak(1, Outcome.SNOOZED),
    "suspect": 1,
    "spared": 2,
    "blameless_losses": 1,
    "moved_to": "q",
    "reprioritised_to": 7,
    "fingerprint": "f",
    "failed_at": NOW,
    "told": (Notified("https://example.org", 1, UUID(int=3), NOW),),
}
"""Of each field of a state a value that a new job does not have."""


def read(rows: ModuleType, state: str) -> Job:
    """The job that is as ``JOB``, and has this state."""
    columns = sqlite.RECORD if rows is sqlite_rows else postgres.RECORD
    stored: dict[str, Any] = dict.fromkeys(column.name for column in columns)
    stored |= {"spec": msgspec.json.encode(JOB.spec).decode(), "status": "queued", "payload": "{}", "state": state}
    reader = sqlite_rows.reader() if rows is sqlite_rows else postgres_rows.Reader()
    return reader.job(list(stored.values()))


def kept(job: Job) -> dict[str, Any]:
    """What a state keeps of a job."""
    return {name: getattr(job, name) for name in State.__struct_fields__}


@pytest.mark.parametrize("rows", [sqlite_rows, postgres_rows], ids=["sqlite", "postgres"])
@pytest.mark.parametrize("beside", [{}, {"attempt": 1, "blameless_losses": 1}], ids=["new", "lost"])
@pytest.mark.parametrize("field", State.__struct_fields__)
def test_a_state_says_all_there_is_wherever_it_ends(rows: ModuleType, field: str, beside: dict[str, Any]) -> None:
    job = replace(JOB, **beside | {field: STATES[field]})
    text = state_of(job, Micros())
    assert kept(read(rows, text)) == kept(job)
    assert text != CUT_OFF or kept(job) == kept(replace(JOB, attempt=1, blameless_losses=1))


@pytest.mark.parametrize("rows", [sqlite_rows, postgres_rows], ids=["sqlite", "postgres"])
def test_a_state_that_an_earlier_version_wrote_to_its_end_is_read(rows: ModuleType) -> None:
    for blameless in (0, 1):
        text = f"[1,0,0,0,null,null,null,null,null,0,false,{blameless},null,null,null,null,null]"
        assert kept(read(rows, text)) == kept(replace(JOB, attempt=1, blameless_losses=blameless))


def test_all_that_were_lost_in_a_power_cut_have_one_short_state() -> None:
    assert state_of(replace(JOB, attempt=1, blameless_losses=1), Micros()) == CUT_OFF
    # Who takes it for an array reads a loss that does count, and stores the start before the call.
    assert msgspec.json.decode(CUT_OFF, type=State) == State(attempt=1)
    assert state_of(replace(JOB, attempt=1), Micros()) != CUT_OFF
