"""Retention of a job's own: what it says, and when it is over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest

from headrace.core.attempt import History
from headrace.core.defaults import Retention
from headrace.core.explain.job import explain
from headrace.core.job import Spec, spec_of
from headrace.core.lifecycle.retention import Kept, is_past, latest_end, may_be_pruned
from headrace.core.status import ENDED, LIVE, Status
from tests.core.stand import at, stand

HOUR = Kept(completed=3600, failed=3600, cancelled=3600)


@pytest.mark.parametrize("status", sorted(ENDED))
def test_its_own_retention_wins_over_that_of_all(status: Status) -> None:
    job = stand(status)
    own = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, retention=HOUR))
    assert job.finished_at is not None
    early, late = {status: job.finished_at}, {status: job.finished_at - timedelta(microseconds=1)}
    over = job.finished_at + timedelta(hours=1)
    assert (is_past(job, early, None), is_past(job, late, over), is_past(job, {}, over)) == (True, False, False)
    assert not is_past(own, early, None)
    assert not is_past(own, early, over - timedelta(microseconds=1))
    assert is_past(own, late, over)
    assert is_past(own, {}, over)


@pytest.mark.parametrize("status", sorted(LIVE))
def test_live_jobs_are_kept(status: Status) -> None:
    assert not is_past(stand(status), dict.fromkeys(Status, at(1e9)), at(1e9))


def test_what_it_leaves_open_is_as_for_all() -> None:
    job = stand(Status.FAILED)
    own = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, retention=Kept(completed=0)))
    assert is_past(own, {Status.FAILED: at(1e9)}, None)
    assert not is_past(own, {}, at(1e9))


def test_up_to_when_jobs_are_removed() -> None:
    job = stand(Status.FAILED)
    assert latest_end({Status.FAILED: at(-5), Status.COMPLETED: at(-9)}, []) == at(-5)
    assert latest_end({Status.FAILED: at(-5)}, [job]) == job.finished_at


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (HOUR, "60 min"),
        (Kept(completed=7200, failed=86400 * 90), "completed 2 h, failed 90 d"),
        (Kept(completed=60, failed=60), "completed 60 s, failed 60 s"),
    ],
)
def test_it_is_told_in_words(kept: Kept, said: str) -> None:
    assert str(kept) == said


def test_a_spec_says_nothing_of_it_unless_asked() -> None:
    plain = Spec(task="t", created_at=at(0))
    assert "retention" not in msgspec.json.encode(plain).decode()
    own = Spec(task="t", created_at=at(0), retention=Kept(failed=1.5))
    assert spec_of(msgspec.json.encode(own).decode()) == own


def test_explain_says_until_when_it_is_kept() -> None:
    job = stand(Status.COMPLETED)
    own = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, retention=HOUR))
    assert "It is kept until" in explain(own, History(), at(5))
    assert "It is kept until" not in explain(job, History(), at(5))


@pytest.mark.parametrize(("status", "hours"), [(Status.COMPLETED, 3), (Status.FAILED, 1)])
def test_explain_counts_from_the_end_of_the_period_for_which_the_key_is_held(status: Status, hours: int) -> None:
    job = stand(status)
    assert job.finished_at is not None
    late = (job.finished_at + timedelta(hours=2) - job.spec.created_at).total_seconds()
    spec = msgspec.structs.replace(job.spec, retention=HOUR, dedup="k", dedup_for=late)
    said = explain(msgspec.structs.replace(job, spec=spec), History(), at(5))
    assert [one.data["until"] for one in said.facts if one.code == "retention"] == [
        job.finished_at + timedelta(hours=hours)
    ]


def test_an_id_says_whether_its_job_may_have_been_pruned() -> None:
    now, kept = datetime(2030, 1, 1, tzinfo=UTC), Retention(completed=60, failed=30, cancelled=90)

    def made(age: float) -> UUID:
        return UUID(int=int((now.timestamp() - age) * 1000) << 80 | 7 << 76 | 0b10 << 62)

    assert [may_be_pruned(made(age), kept, now) for age in (-100, 0, 29.9, 30, 1e9)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert not may_be_pruned(uuid4(), kept, now)  # it tells no time
    assert not may_be_pruned(UUID(int=0), kept, now)
    assert not may_be_pruned(UUID("ffffffff-ffff-7fff-bfff-ffffffffffff"), kept, now)
