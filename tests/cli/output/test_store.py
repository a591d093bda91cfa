"""The store as a whole, for people to look at."""

from __future__ import annotations

import io
from uuid import UUID

import pytest
from rich.console import Console

from headrace.cli.output.store import tasks_view, workers_view
from headrace.client.api.tasks import TaskInfo
from headrace.core.lifecycle.retention import Kept
from headrace.core.stats.utilisation import Utilisation
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


CREW = [
    WorkerRow(
        WorkerInfo(id=ID, host="mill.example.internal", pid=4711, started_at=at(0), concurrency=10),
        Beat(
            busy=1,
            done=123_456,
            utilisation=Utilisation(busy_share=0.314, failed=12, claimed_at=at(60), memory=84_934_656),
        ),
        7,
        at(65),
        True,
        4,
    ),
    WorkerRow(
        WorkerInfo(
            id=UUID(int=ID.int + 1),
            host="worker-gpu-01",
            pid=0,
            started_at=at(0),
            concurrency=2,
            name="worker-gpu-01",
            queues=("gpu",),
        ),
        Beat(busy=2),
        7,
        at(65),
        True,
        2,
    ),
]


@pytest.mark.parametrize("width", [80, 120])
def test_how_much_of_workers_is_used_is_seen(width: int) -> None:
    out = Console(file=io.StringIO(), width=width, color_system=None, markup=False)
    out.print(workers_view(CREW, at(65)))
    assert isinstance(out.file, io.StringIO)
    lines = out.file.getvalue().splitlines()
    assert len(lines) == 3, "nothing is wrapped"
    assert all("…" not in line for line in lines)
    columns = {
        80: "state busy used attempts queues",
        120: "busy used attempts failed attempts last claim memory queues",
    }
    assert columns[width] in " ".join(lines[0].split())
    assert "4/10 31% 123456 " in " ".join(lines[1].split())
    assert lines[2].startswith("worker-gpu-01 "), "by what it calls itself"
    assert "2/2 – 0 " in " ".join(lines[2].split())
    assert width == 80 or "12 5 s ago 85 MB" in " ".join(lines[1].split())


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
