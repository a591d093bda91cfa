"""How soon a job runs again behind a hub, when its worker, the hub, or both were ended by ``kill -9``."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self, TypeVar

import psutil  # type: ignore[import-untyped]

from bench.plan import EngineName
from bench.programs import ROOT
from bench.progress import Progress
from bench.recovery import BOUND, PATIENCE, Found, starts
from bench.stores import Stores
from headrace import App

T = TypeVar("T")

__all__ = ["HUB_CASES", "HubCase", "hub_recovery", "hub_recovery_lines"]

FAR = 15.0
"""Seconds that are promised where a worker is behind a hub: the 12.5 s in which it may be back, and looks."""


class _Scene:
    """One store, and what runs on it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self._members: list[subprocess.Popen[bytes]] = []

    def _start(self, *words: str, log: str, url: str) -> subprocess.Popen[bytes]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
        with (self.folder / log).open("ab") as file:
            member = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=ROOT,
                env=clean | {"HEADRACE_URL": url},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self._members.append(member)
        return member

    async def hub(self) -> tuple[subprocess.Popen[bytes], str]:
        """Another hub, and its address."""
        log = f"hub-{len(self._members)}"
        flags = ["--port", "0", "--log-format", "json", "--webhook-http", "--webhook-allow", "127.0.0.0/8"]
        member = self._start("headrace", "hub", "bench.recovered:app", *flags, log=log, url=self.url)
        found = await _until(lambda: _address(self.folder / log))
        return member, found

    def worker(self, url: str | None = None) -> subprocess.Popen[bytes]:
        """Another worker, on the database or at this hub."""
        return self._start("headrace", "worker", "bench.recovered:app", log="log", url=url or self.url)

    def socket(self, address: str) -> subprocess.Popen[bytes]:
        """Another worker, over a WebSocket."""
        return self._start("bench.recovering_socket", address, str(self.folder), log="log", url=self.url)

    async def began(self, count: int) -> tuple[int, float]:
        """Who began the job for this time, and when."""
        return (await _until(lambda: starts(self.folder)[count - 1 : count]))[0]

    async def settled(self) -> None:
        """Let its start get on record; and let the kill come at any moment between two looks."""
        await asyncio.sleep(1.5 + random.random())

    def end(self) -> None:
        for member in self._members:
            member.kill()
            member.wait()


async def _until(look: Callable[[], T]) -> T:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := look():
            return found
        await asyncio.sleep(0.01)
    raise TimeoutError("what is waited for does not come")


def _address(log: Path) -> str:
    lines = log.read_text().splitlines()
    return next((str(one["url"]) for line in lines if "url" in (one := json.loads(line))), "")


def _kill(*members: subprocess.Popen[bytes]) -> float:
    for member in members:
        os.kill(member.pid, signal.SIGKILL)
    at = time.time()
    for member in members:
        member.wait()
    return at


async def _submit(scene: _Scene) -> None:
    from bench.recovered import app, long

    with app.override(url=scene.url):
        async with app:
            await long.submit(str(scene.folder))


async def _by_socket(scene: _Scene) -> float:
    _, address = await scene.hub()
    return await _one_of_two(scene, lambda: scene.socket(address))


async def _by_engine(scene: _Scene) -> float:
    _, address = await scene.hub()
    return await _one_of_two(scene, lambda: scene.worker(f"hub+{address}"))


async def _one_of_two(scene: _Scene, hire: Callable[[], subprocess.Popen[bytes]]) -> float:
    first = hire()
    await _submit(scene)
    await scene.began(1)
    hire()
    await scene.settled()
    killed = _kill(first)
    return (await scene.began(2))[1] - killed


async def _together(scene: _Scene) -> float:
    hub, _ = await scene.hub()
    await _has_duties(scene)
    first = scene.worker()
    await _submit(scene)
    await scene.began(1)
    scene.worker()
    await _has_workers(scene, 3)  # one of them delivers beside the hub
    await scene.settled()
    killed = _kill(hub, first)
    return (await scene.began(2))[1] - killed


async def _delivery(scene: _Scene) -> float:
    """Seconds until another hub sends what the killed one, which also swept, was sending."""
    hub, _ = await scene.hub()
    await _has_duties(scene)
    await scene.hub()
    await _has_workers(scene, 2)
    async with _Receiver(hub.pid) as receiver, App(scene.url) as app:
        await app.webhooks.add(f"http://127.0.0.1:{receiver.port}/", events=["submitted"])
        while not receiver.unanswered:  # until the right one takes a message
            before = receiver.asked
            await _submit(scene)
            await _until(lambda before=before: receiver.asked > before)  # type: ignore[misc]
        await scene.settled()
        killed = _kill(hub)
        await _until(lambda: receiver.again)
        return receiver.again[0] - killed


class _Receiver:
    """Takes messages, and answers all but those of one sender, while that lives."""

    def __init__(self, pid: int) -> None:
        self._sender = psutil.Process(pid)
        self._waiting: set[asyncio.StreamWriter] = set()
        self.asked = 0
        self.unanswered: set[str] = set()
        """The ids of messages that are not answered."""
        self.again: list[float] = []
        """When one of these was sent by another."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for writer in self._waiting:
            writer.transport.abort()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at, head = time.time(), (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        id = head.partition("webhook-id: ")[2].partition("\r\n")[0]
        if self._is_from_it(writer.get_extra_info("peername")[1]):
            self.unanswered.add(id)
            self._waiting.add(writer)
        else:
            if id in self.unanswered:
                self.again.append(at)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            writer.close()
        self.asked += 1

    def _is_from_it(self, port: int) -> bool:
        with suppress(psutil.NoSuchProcess):
            return any(one.laddr and one.laddr.port == port for one in self._sender.net_connections("tcp"))
        return False


async def _has_duties(scene: _Scene) -> None:
    """Wait until somebody sweeps, which is the hub, since nobody else is there."""
    async with App(scene.url) as app:
        while await app.session.engine.documents.holder("duty:sweeper", app.host.clock.now()) is None:  # noqa: ASYNC110 - a store is asked
            await asyncio.sleep(0.05)


async def _has_workers(scene: _Scene, count: int) -> None:
    async with App(scene.url) as app:
        while sum(row.alive for row in await app.workers.list()) < count:  # noqa: ASYNC110 - a store is asked
            await asyncio.sleep(0.05)


@dataclass(frozen=True)
class HubCase:
    """Who is killed, and within how many seconds his job must run again."""

    name: str
    run: Callable[[_Scene], Awaitable[float]] = field(compare=False)
    bound: float | None = None
    """None: as of workers on the database."""


HUB_CASES = (
    HubCase("a worker over a WebSocket", _by_socket, FAR),
    HubCase("a worker over the remote engine", _by_engine, FAR),
    HubCase("a hub and a worker together", _together),
    HubCase("a hub that delivers", _delivery),
)


def hub_recovery(stores: Stores, *, turns: int) -> dict[HubCase, Found]:
    """What came of each case; each turn has a store of its own, so that the hub has the duties."""
    found, progress = dict[HubCase, Found](), Progress(len(HUB_CASES) * turns)
    for case in HUB_CASES:
        found[case] = Found()
        for turn in range(turns):
            progress.step(f"{case.name}: {turn + 1} of {turns}")
            with stores.fresh() as store, TemporaryDirectory() as folder:
                scene = _Scene(store if "://" in store else f"sqlite:///{store}", Path(folder))
                try:
                    found[case].seconds.append(asyncio.run(_measured(case, scene)))
                finally:
                    scene.end()
    progress.done()
    return found


async def _measured(case: HubCase, scene: _Scene) -> float:
    async with asyncio.timeout(3 * PATIENCE):
        return await case.run(scene)


def hub_recovery_lines(engine: EngineName, found: dict[HubCase, Found]) -> Iterator[str]:
    """Median and worst."""
    yield "the same behind a hub, from kill -9 of"
    for case, one in found.items():
        bound = case.bound or BOUND[engine]
        mark = "✓" if max(one.seconds) <= bound else "✗"
        figures = f"{statistics.median(one.seconds):>6.2f} {max(one.seconds):>6.2f}"
        yield f"  {mark} {case.name:<46} {figures}   ≤ {bound:g}, {len(one.seconds)} times"
