"""What stands in for a job that cannot be shown."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from headrace.core.codec.stand_in import guarded, is_stand_in, stand_in, told_fault
from headrace.core.job import Job
from headrace.core.status import Status

ID = UUID("01a1eb18-7998-7000-9efb-25d760e5988a")


def test_it_says_which_and_why_and_since_when() -> None:
    job = stand_in(ID, ValueError("no\nnumber"), seq=7, status=Status.QUEUED)
    assert (job.id, job.seq, job.status) == (ID, 7, Status.QUEUED)
    assert job.error is not None
    assert f"{job.error.type}: {job.error.message}" == "cannot be shown: ValueError: no number"
    assert job.created_at == datetime(2026, 11, 17, 20, 0, 12, 184000, tzinfo=UTC)
    assert job.to_dict()["id"] == str(ID)
    assert is_stand_in(job)


def test_it_has_a_rev_that_no_stored_job_has() -> None:
    assert stand_in(ID, ValueError()).rev == 0


@pytest.mark.parametrize("id", [UUID(int=0), UUID(int=2**128 - 1)])
def test_any_id_will_do(id: UUID) -> None:
    assert stand_in(id, KeyError("x")).id == id


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_that_says_nothing_has_its_name() -> None:
    assert told_fault(Silent()) == "Silent"
    assert told_fault(ValueError()) == "ValueError"


def test_of_many_only_the_one_that_fails_is_replaced() -> None:
    def show(job: Job) -> str:
        if job.rev:
            raise OverflowError("too large")
        return f"{job.id} {job.error and job.error.message}"

    made = stand_in(ID, ValueError())
    assert guarded(lambda job: job.id, made) == ID
    bad = Job(**{name: getattr(made, name) for name in made.__struct_fields__} | {"rev": 3})
    assert guarded(show, bad) == f"{ID} OverflowError: too large"
