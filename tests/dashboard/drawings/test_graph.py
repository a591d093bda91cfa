"""Families as drawings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from headrace.core.job import Job, Spec
from headrace.core.status import Status
from headrace.dashboard.drawings.graph import MAX_JOBS, graph

START = datetime(2026, 1, 1, tzinfo=UTC)


def job(number: int, parent: int | None = None, after: tuple[int, ...] = ()) -> Job:
    spec = Spec(
        task=f"t{number}",
        created_at=START,
        parent=None if parent is None else UUID(int=parent),
        after=tuple(UUID(int=one) for one in after),
    )
    same: Any = {"available_at": START, "arrived_at": START, "updated_at": START}
    return Job(id=UUID(int=number), spec=spec, payload_text="{}", status=Status.QUEUED, seq=number, **same)


def test_whoever_comes_from_another_stands_to_its_right() -> None:
    found = graph([job(1), job(2, parent=1), job(3, parent=1), job(4, parent=1, after=(2, 3))])
    assert found is not None
    places = {node.job.task: node.x for node in found.nodes}
    assert places["t1"] < places["t2"] == places["t3"] < places["t4"]
    assert sorted(edge.kind for edge in found.edges) == ["after", "after", "child", "child", "child"]
    rows = {(node.x, node.y) for node in found.nodes}
    assert len(rows) == 4, "none stands on another"


def test_a_job_alone_is_not_drawn_and_of_many_not_all_are() -> None:
    assert graph([job(1)]) is None
    assert graph([job(1), job(2)]) is None
    found = graph([job(1), *(job(number, parent=1) for number in range(2, 200))])
    assert found is not None
    assert (len(found.nodes), found.more) == (MAX_JOBS, True)


def test_a_circle_does_not_hang_it() -> None:
    found = graph([job(1, after=(2,)), job(2, after=(1,))])
    assert found is not None
    assert len(found.nodes) == 2
