from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from headrace.core.job import Job, Spec
from headrace.core.lifecycle.submission import submit
from headrace.core.status import Status
from headrace.core.updates import Allowance, Changed, Memory

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def job(number: int, delay: float = 0.0) -> Job:
    spec = Spec(task="work", created_at=NOON)
    return submit(UUID(int=number), spec, "{}", NOON, available_at=NOON + timedelta(seconds=delay))


def test_an_allowance_is_so_many_at_once_and_then_so_many_a_second() -> None:
    allowance = Allowance(100, 10)
    assert allowance.left(50.0) == 100
    allowance.spend(100)
    assert [allowance.left(50.0), allowance.left(50.5), allowance.left(52.0)] == [0, 5, 20]
    assert allowance.left(1000.0) == 100
    allowance.spend(120)
    assert [allowance.left(1000.0), allowance.left(1001.0), allowance.left(1003.0)] == [0, 0, 10]


def test_what_is_as_it_was_given_last_is_no_news() -> None:
    memory, one = Memory(10), job(1)
    assert memory.note(one)
    assert not memory.note(one)
    assert memory.note(replace(one, rev=2))
    assert memory.note(replace(one, rev=2, updated_at=NOON + timedelta(seconds=1)))  # its progress
    ended = replace(one, rev=3, status=Status.COMPLETED, finished_at=NOON)
    assert memory.note(ended)
    assert not memory.note(ended)
    assert memory.live == []
    assert one.id in memory
    memory.forget(one.id)
    assert one.id not in memory


def test_the_newest_are_remembered_whatever_ended_beside_them() -> None:
    memory = Memory(3)
    for number in range(5):
        memory.note(job(number))
    for number in range(10, 30):
        memory.note(replace(job(number), status=Status.COMPLETED, finished_at=NOON))
    assert memory.live == [UUID(int=number) for number in (2, 3, 4)]
    assert [number for number in range(30) if UUID(int=number) in memory] == [2, 3, 4, 27, 28, 29]


def test_jobs_fall_due_once_each_unless_they_moved_on() -> None:
    memory = Memory(10)
    for number in range(1, 6):
        memory.note(job(number, delay=number))
    assert memory.next_due == NOON + timedelta(seconds=1)
    memory.note(replace(job(2), status=Status.CANCELLED, finished_at=NOON))
    assert memory.fallen_due(NOON) == []
    assert memory.fallen_due(NOON + timedelta(seconds=3)) == [UUID(int=1), UUID(int=3)]
    assert memory.fallen_due(NOON + timedelta(seconds=3)) == []
    assert memory.next_due == NOON + timedelta(seconds=4)


def test_moments_of_what_moved_on_are_not_kept_for_ever() -> None:
    memory, one = Memory(5), job(1, delay=60)
    for rev in range(1000):
        memory.note(replace(one, rev=rev))
    assert len(memory._due) <= 10
    assert memory.fallen_due(NOON + timedelta(seconds=61)) != []


def test_a_change_is_told_as_json() -> None:
    told = Changed((job(1),), 7).to_dict()
    assert told["dropped"] == 7
    assert told["jobs"] == [job(1).to_dict()]
    assert dict(Changed(()))["jobs"] == []
