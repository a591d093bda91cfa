"""The four traces of the page about the architecture, followed under a profiler: each function is called, in order."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from headrace import App
from tests.docs.test_architecture import PAGE, SOURCE, traces
from tests.hub.remote_workers.working import work
from tests.hub.serving import serving

TRACES = traces(PAGE)


class Calls:
    """The functions of headrace that were called in any thread while it records."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.recording = False
        self._paths: dict[str, str | None] = {}

    def see(self, frame: FrameType, event: str, arg: Any) -> None:
        """What the profiler calls."""
        if not self.recording or event != "call":
            return
        file, name = frame.f_code.co_filename, frame.f_code.co_qualname
        if file not in self._paths:
            path = Path(file)
            self._paths[file] = path.relative_to(SOURCE).as_posix() if path.is_relative_to(SOURCE) else None
        if self._paths[file] is not None:
            self.made.append(f"{self._paths[file]}:{name}")


def lacks(made: Sequence[str], steps: Sequence[str]) -> list[str]:
    """From the first step on that was not called after those before it."""
    left: Iterator[str] = iter(made)
    for place, step in enumerate(steps):
        if step not in left:
            return list(steps[place:])
    return []


@pytest.fixture
def calls() -> Iterator[Calls]:
    seen = Calls()
    with _profiling(seen):
        yield seen


@contextmanager
def _profiling(seen: Calls) -> Iterator[None]:
    here, others = sys.getprofile(), threading.getprofile()
    threading.setprofile(seen.see)  # threads that the App starts from now on
    sys.setprofile(seen.see)
    try:
        yield
    finally:
        sys.setprofile(here)
        threading.setprofile(others)


async def test_a_submit_and_its_finish(calls: Calls, tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def add(a: int, b: int) -> int:
        calls.made.clear()  # what follows is its end
        calls.recording = True
        return a + b

    async with app:
        await add.submit(1, 2)  # which finds out what every later one knows
        calls.recording = True
        handle = await add.submit(3, 4)
        calls.recording = False
        assert lacks(calls.made, TRACES["Submit"]) == []
        async with app.worker(concurrency=1):
            assert await handle.result(timeout=30) == 7
    assert lacks(calls.made, TRACES["Finish"]) == []


async def test_a_submit_over_http(calls: Calls, tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    async with serving(app) as hub:
        calls.recording = True
        answer = await hub.client.post("/api/jobs", json={"task": "add", "payload": {"a": 1, "b": 2}})
        calls.recording = False
    assert answer.status_code == 201
    assert lacks(calls.made, TRACES["HTTP submit"]) == []


async def test_a_finish_by_a_remote_worker(calls: Calls, tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    async with serving(app) as hub:
        await hub.client.post("/api/jobs", json={"task": "add", "payload": {"a": 1, "b": 2}})
        token = (await work(hub.client, "register_worker", worker_id="far", tasks=["add"]))["token"]
        given = await work(hub.client, "claim_job", worker_id="far", token=token, wait=20)
        calls.recording = True
        await work(hub.client, "complete_job", lease=given["lease"], result=3)
        calls.recording = False
    assert lacks(calls.made, TRACES["Remote finish"]) == []


def test_a_step_that_is_not_called_or_too_early_is_found() -> None:
    made = ["a.py:f", "b.py:g", "a.py:f", "c.py:h"]
    assert lacks(made, ["a.py:f", "c.py:h"]) == []
    assert lacks(made, ["b.py:g", "a.py:f"]) == []
    assert lacks(made, ["c.py:h", "b.py:g", "a.py:f"]) == ["b.py:g", "a.py:f"]
    assert lacks(made, ["a.py:f", "no.py:f"]) == ["no.py:f"]
