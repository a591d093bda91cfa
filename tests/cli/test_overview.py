"""The store as a whole, for people to look at."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headrace.cli.overview import tasks_view, workers_view
from headrace.client.admin import TaskInfo
from headrace.core.retention import Kept
from headrace.engine import Beat, WorkerInfo, WorkerRow
from tests.cli.records import ID, at


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        (1.9, None),
        (-1.9, None),
        (90.0, "clock 90 s ahead of the store's"),
        (-3600.0, "clock 60 min behind the store's"),
    ],
)
def test_a_worker_whose_clock_is_wrong_is_seen(apart: float, said: str | None) -> None:
    info = WorkerInfo(id=ID, host="mill", pid=42, started_at=at(0), concurrency=10)
    out = Console(file=io.StringIO(), width=200, color_system=None, markup=False)
    out.print(workers_view([WorkerRow(info, Beat(clock_apart=apart), 7, at(5), True, 0)], at(5)))
    assert isinstance(out.file, io.StringIO)
    printed = out.file.getvalue()
    assert "running" in printed
    assert ("clock" in printed) is (said is not None)
    assert said is None or said in printed


@pytest.mark.parametrize("width", [80, 120])
def test_what_a_worker_offers_is_seen(width: int) -> None:
    offers = {"gpu_memory_gb": 48, "region": "eu", "hardware": {"kind": "a100"}}
    info = WorkerInfo(id=ID, host="mill", pid=42, started_at=at(0), concurrency=10, offers=offers)
    out = Console(file=io.StringIO(), width=width, color_system=None, markup=False)
    out.print(workers_view([WorkerRow(info, Beat(), 7, at(5), True, 0)], at(5)))
    assert isinstance(out.file, io.StringIO)
    printed = " ".join(out.file.getvalue().split())
    assert "offers" in printed
    for word in ("gpu_memory_gb=48,", "region=eu,", '"a100"}'):
        assert word in printed


@pytest.mark.parametrize("width", [80, 120])
def test_the_retention_of_tasks_is_seen_where_one_has_its_own(width: int) -> None:
    plain = TaskInfo("resize", "images", 50, 1800.0, {}, True)
    own = TaskInfo("ping", "default", 50, 1800.0, {}, True, Kept(completed=7200, failed=7200, cancelled=7200))
    printed = []
    for tasks in ([plain], [plain, own]):
        out = Console(file=io.StringIO(), width=width, color_system=None, markup=False)
        out.print(tasks_view(tasks))
        assert isinstance(out.file, io.StringIO)
        printed.append(out.file.getvalue())
    assert "kept" not in printed[0]
    assert "kept" in printed[1]
    assert "2 h" in printed[1]
