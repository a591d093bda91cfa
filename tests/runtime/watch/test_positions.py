from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.core.job import Job
from headrace.core.updates import Place
from headrace.errors import Unavailable
from headrace.runtime.host import Host
from headrace.runtime.watch import positions as module
from headrace.runtime.watch.positions import Places
from tests.support.until import until


class Standing:
    def __init__(self, queue: str, told: list[Any]) -> None:
        self.job: Any = SimpleNamespace(queue=queue, owner=self)
        self.told = told

    def stand(self, place: Place) -> bool:
        self.told.append((self, place))
        return True


class Scene:
    """Jobs that stand in line; their place is how often it was asked for."""

    def __init__(self, host: Host | None = None) -> None:
        self.line: list[Standing] = []
        self.asked: list[list[Standing]] = []
        self.told: list[Any] = []
        self.broken = False
        self.takes: Callable[[], object] = lambda: None
        """Called whenever places are computed."""
        self.places = Places(host or Host(), self.placing, lambda: self.line)

    def join(self, queue: str = "default") -> Standing:
        self.line.append(Standing(queue, self.told))
        self.places.expect(queue)
        return self.line[-1]

    async def placing(self, jobs: Sequence[Job]) -> list[Place | None]:
        self.asked.append([one.owner for one in jobs])  # type: ignore[attr-defined]
        self.takes()
        if self.broken:
            raise Unavailable("away")
        return [Place(len(self.asked)) for _ in jobs]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_FIRST_SECONDS", 0.02)


async def test_a_queue_is_computed_once_for_all_who_stand_in_it(quick: None) -> None:
    scene = Scene()
    one, two, other = scene.join(), scene.join(), scene.join("slow")
    await until(lambda: len(scene.told) >= 6)
    assert scene.asked[0] == [one, two]
    assert scene.asked[1] == [other]
    scene.places.stop()


async def test_it_ends_when_nobody_stands_in_line_and_begins_again(quick: None) -> None:
    scene = Scene()
    scene.join()
    await until(lambda: scene.told)
    scene.line.clear()
    await until(lambda: scene.places._task is not None and scene.places._task.done())
    before = len(scene.asked)
    scene.join()
    await until(lambda: len(scene.asked) > before)
    scene.places.stop()


async def test_a_store_that_is_away_is_asked_again(quick: None) -> None:
    scene = Scene()
    scene.broken = True
    scene.join()
    await until(lambda: scene.asked)
    scene.broken = False
    await until(lambda: scene.told)
    scene.places.stop()


async def test_however_often_somebody_comes_it_is_computed_once_a_second() -> None:
    scene = Scene()
    for _ in range(50):
        scene.join()
        await asyncio.sleep(0)
    await until(lambda: scene.told)
    assert len(scene.asked) == 1
    scene.places.stop()


class Hands(Host):
    """Waits by moving its clock."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 1000.0

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        await asyncio.sleep(0)
        if not event.is_set():
            self.time += seconds or 0.0
        return event.is_set()


async def test_who_waits_is_told_once_a_second_at_most_however_the_queue_moves_and_whoever_comes() -> None:
    hands = Hands()
    scene = Scene(hands)
    scene.places._time = lambda: hands.time  # type: ignore[method-assign]
    first, told = scene.join(), list[float]()
    while len(told) < 10:
        known = len(scene.told)
        await asyncio.sleep(0)
        told += [hands.time for one, _ in scene.told[known:] if one is first]
        scene.line[1:] = []  # who came has gone, and comes again
        scene.join()
    gaps = [after - before for before, after in pairwise(told)]
    assert min(gaps) >= module.POLL_FIRST_SECONDS - 1e-6
    assert max(gaps) < 2 * module.POLL_FIRST_SECONDS
    scene.places.stop()


@pytest.mark.parametrize("others", [False, True])
async def test_what_takes_long_is_computed_seldom_whoever_comes(others: bool) -> None:
    hands, took, asked = Hands(), 0.5, list[float]()
    scene = Scene(hands)
    scene.places._time = lambda: hands.time  # type: ignore[method-assign]

    def take() -> None:
        asked.append(hands.time)
        hands.time += took

    scene.takes = take
    scene.join()
    for _ in range(10_000):
        if len(asked) >= 5:
            break
        await asyncio.sleep(0)
        if others:
            scene.line[1:] = []
            scene.join()
    rests = [after - before - took for before, after in pairwise(asked)]
    assert len(rests) == 4
    assert min(rests) >= module._MIN_PAUSE_RATIO * took - 1e-6
    assert max(rests) < 2 * module._MIN_PAUSE_RATIO * took
    scene.places.stop()
