"""What waits to be written is bounded by bytes: whoever would add to it waits, and nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace import App
from headrace.config import Settings
from headrace.core.change import Change
from headrace.core.status import Status
from headrace.errors import ConfigError
from headrace.runtime.writes.load import Load, size_at_most
from tests.support.apps import ENGINES, url_of
from tests.support.faults import Instead
from tests.support.until import until

pytestmark = pytest.mark.every_engine

MIB = 1024 * 1024


def test_room_is_told_once_to_whoever_was_kept() -> None:
    load, told = Load(10), list[str]()

    def one() -> None:
        told.append("one")

    def broken() -> None:
        raise ValueError("no")

    assert not load.keeps(one)
    load.bytes += 12
    assert load.full
    assert load.keeps(one)
    assert load.keeps(broken)
    assert load.keeps(one)
    load.left(2)
    assert told == []
    load.left(1)
    assert told == ["one"]
    load.left(9)
    assert told == ["one"]


def test_the_size_of_a_text_is_never_too_small() -> None:
    for text in ("", "plain", "ü" * 7, "\U0001f600" * 5):
        assert size_at_most(text) >= len(text.encode())
    assert size_at_most(None) == 0


@pytest.mark.parametrize("given", ["64MiB", "64 mib", 64 * MIB, str(64 * MIB), "65536KiB"])
def test_the_setting_is_a_number_of_bytes(given: Any) -> None:
    assert Settings.load(code={"unwritten": given}).unwritten == 64 * MIB


@pytest.mark.parametrize("given", [0, -1, "much", "1.5MiB", True, "0MiB", "5 parsecs"])
def test_what_is_no_size_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="unwritten"):
        Settings.load(code={"unwritten": given})


class Gate:
    """In place of a verb: it stands until the gate is open."""

    def __init__(self, verb: Any) -> None:
        self._verb, self.open = verb, asyncio.Event()

    async def __call__(self, *args: Any, **more: Any) -> Any:
        await self.open.wait()
        return await self._verb(*args, **more)


@pytest.mark.parametrize("mode", ["async", "bulk", "thread"])
@pytest.mark.parametrize("kind", ENGINES)
async def test_slots_wait_while_much_is_unwritten(
    kind: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots, most, jobs = 3, 4 * MIB, 40
    monkeypatch.setenv("HEADRACE_UNWRITTEN", "4MiB")
    app, began = App(url_of(kind, tmp_path)), list[int]()
    text = "x" * (MIB // 2)

    if mode == "bulk":

        @app.bulk(size=2, wait=0.01)
        async def make(n: list[int]) -> list[str]:
            began.extend(n)
            return [text] * len(n)

    elif mode == "thread":

        @app.task
        def make(n: int) -> str:
            began.append(n)
            return text

    else:

        @app.task
        async def make(n: int) -> str:
            began.append(n)
            return text

    async with app:
        writer = app.session.writer
        handles = await make.map([(n,) for n in range(jobs)])
        real, apply, peak = writer.engine, Gate(writer.engine.jobs.apply), 0
        writer.engine = Instead(real, jobs=Instead(real.jobs, apply=apply))
        finish = writer.finish

        def watched(change: Change, ticket: Any) -> None:
            nonlocal peak
            finish(change, ticket)
            peak = max(peak, writer.load.bytes)

        writer.finish = watched  # type: ignore[method-assign]
        async with app.worker(concurrency=slots) as worker:
            await until(lambda: writer.load.full and not worker.running())
            for _ in range(50):  # nothing more begins, whatever else goes on
                await asyncio.sleep(0)
            stood = len(began)
            assert stood < jobs
            assert writer.load.full
            apply.open.set()
            for handle in handles:
                ended = await handle.ended(timeout=30)
                assert ended is not None
                assert ended.status is Status.COMPLETED
        held = slots * (2 if mode == "bulk" else 1) * MIB
        assert peak <= most + held
        assert len(began) == jobs
        assert writer.load.bytes == 0


async def test_submits_wait_while_much_is_unwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_UNWRITTEN", str(MIB))
    app = App(url_of("sqlite", tmp_path))

    @app.task
    async def take(text: str) -> None: ...

    async with app:
        submits = app.session.writer.inserts
        gate = Gate(submits.engine.jobs.insert)
        submits.engine = Instead(submits.engine, jobs=Instead(submits.engine.jobs, insert=gate))
        submits._plain._begin = None  # the short way leads past the gate
        load = submits._plain._load
        running = [asyncio.create_task(take.submit("x" * 100_000)) for _ in range(50)]
        await until(lambda: load.full)
        for _ in range(20):
            await asyncio.sleep(0)
            assert load.bytes <= MIB + 110_000
        gate.open.set()
        handles = await asyncio.gather(*running)
        assert await app.jobs.count() == len(handles) == 50
        assert load.bytes == 0
