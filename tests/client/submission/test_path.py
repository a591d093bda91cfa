"""The way of a lone submit on SQLite: how many functions of how many modules it calls on the caller's thread."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from headrace import App

MAX_MODULES, MAX_CALLS = 22, 50


async def test_a_lone_submit_passes_few_modules_in_few_calls(tmp_path: Path) -> None:
    """Each function counts as often as it is called; a coroutine that goes on is no call."""
    app, calls, seen = App(f"sqlite:///{tmp_path}/jobs.db"), list[str](), list[FrameType]()

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    def see(frame: FrameType, event: str, arg: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        # Frames are kept, not their numbers, which would be given again.
        if event == "call" and "headrace" in frame.f_code.co_filename and all(frame is not one for one in seen):
            seen.append(frame)
            if module.startswith("headrace."):
                calls.append(f"{module}:{frame.f_code.co_qualname}")

    async with app:
        for number in range(20):  # which learn what later ones know
            await add.submit(number, 1)
            await asyncio.sleep(0)
        before = sys.getprofile()
        sys.setprofile(see)
        try:
            await add.submit(1, 2)
        finally:
            sys.setprofile(before)
    modules = {call.partition(":")[0] for call in calls}
    assert calls[0] == "headrace.client.task:Task.submit"
    assert "headrace.engines.sqlite.jobs.insert:LoneInsertion.__init__" in calls, "it went another way"
    assert len(modules) <= MAX_MODULES, "\n".join(sorted(modules))
    assert len(calls) <= MAX_CALLS, "\n".join(calls)
