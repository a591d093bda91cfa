"""How soon a job runs again whose worker was ended by ``kill -9``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import psutil  # type: ignore[import-untyped]

from bench.plan import LABELS, EngineName, SideName
from bench.programs import ROOT, program
from bench.progress import Progress
from bench.stores import Stores
from headrace import App, JobHandle
from headrace.cli.process.supervisor import STEADY_SECONDS
from headrace.engine import WorkerRow

__all__ = ["BOUND", "CASES", "PATIENCE", "Case", "Found", "recovery", "recovery_lines", "starts"]

GIVE_UP = 120.0
"""Seconds after which a job counts as not recovered."""
PATIENCE = 120.0
PEER_TURNS = 3
"""How often a peer is killed: most of these take two minutes each."""
PEERS: dict[EngineName, tuple[SideName, ...]] = {
    "sqlite": ("huey",),
    "postgres": ("procrastinate", "pgqueuer", "oban"),
}
BOUND = {"sqlite": 3.0, "postgres": 6.0}


@dataclass(frozen=True)
class Case:
    """How the workers run, and which of them is killed."""

    name: str
    processes: bool
    """Two children of one supervisor, or two workers, of which the killed is not replaced before the job runs again."""
    holder: bool
    """The one that sweeps, or the other."""
    lone: bool = False
    """One worker, started again at once by whoever supervises it."""


CASES = (
    Case("two workers, the sweeper's holder", processes=False, holder=True),
    Case("two workers, the other", processes=False, holder=False),
    Case("--processes 2, the sweeper's holder", processes=True, holder=True),
    Case("--processes 2, the other", processes=True, holder=False),
    Case("one worker, started again at once", processes=False, holder=True, lone=True),
)


@dataclass
class Found:
    """What came of one case, or of one peer."""

    seconds: list[float] = field(default_factory=list)
    lost: int = 0
    """How often it did not run again in time."""
    starting: list[float] = field(default_factory=list)
    """Of these, how long a new process took until it was at work, where one was needed."""
    why: str = ""
    """Why it was not measured."""


class _Scene:
    """Workers of headrace on one store, and one job at a time."""

    def __init__(self, store: str, folder: Path, case: Case) -> None:
        self._url = store if "://" in store else f"sqlite:///{store}"
        self._folder, self._case = folder, case
        self._members: list[subprocess.Popen[bytes]] = []
        self._begun = 0
        os.environ["HEADRACE_URL"] = self._url

    def hire(self) -> None:
        flags = ["--processes", "2"] if self._case.processes else []
        command = [sys.executable, "-m", "headrace", "worker", "bench.recovered:app", *flags]
        log = (self._folder / "log").open("ab")
        self._members.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        log.close()

    async def run(self, turns: int, found: Found, progress: Progress) -> None:
        from bench.recovered import app, long

        need = 1 if self._case.lone else 2
        with app.override(url=self._url):
            async with app:
                for _ in range(1 if self._case.processes else need):
                    self.hire()
                for _ in range(turns):
                    progress.step(f"{self._case.name}: {len(found.seconds) + 1} of {turns}")
                    rows = await self._living(app, need)
                    target = await self._target(app, rows)
                    while True:  # until the right one takes the job
                        handle = await long.submit(str(self._folder))
                        pid, _ = await self._next_start()
                        if pid == target:
                            break
                        await self._finish(handle)
                    await asyncio.sleep(1.5 + random.random())  # its start is on record, at any moment between probes
                    if self._case.processes:  # the supervisor must not take it for one that dies at its start
                        await asyncio.sleep(
                            max(0.0, STEADY_SECONDS + 0.5 - (time.time() - psutil.Process(pid).create_time()))
                        )
                    os.kill(target, signal.SIGKILL)
                    killed = time.time()
                    if self._case.lone:
                        self._reap()
                        self.hire()
                    pid, at = await self._next_start()
                    found.seconds.append(at - killed)
                    if self._case.lone:
                        (row,) = [row for row in await app.workers.list() if row.info.pid == pid]
                        found.starting.append(row.info.started_at.timestamp() - killed)
                    await self._finish(handle)
                    self._reap()
                    if not self._case.processes and not self._case.lone:
                        self.hire()

    async def _living(self, app: App, need: int) -> list[WorkerRow]:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            rows = [row for row in await app.workers.list() if row.alive and psutil.pid_exists(row.info.pid)]
            if len(rows) == need and await self._holder(app) in {row.info.id for row in rows}:
                return rows
            await asyncio.sleep(0.05)
        raise TimeoutError(f"there are not {need} workers")

    async def _holder(self, app: App) -> UUID | None:
        return await app.session.engine.documents.holder("duty:sweeper", app.host.clock.now())

    async def _target(self, app: App, rows: list[WorkerRow]) -> int:
        holder = await self._holder(app)
        return next(row.info.pid for row in rows if (row.info.id == holder) is self._case.holder)

    async def _finish(self, handle: JobHandle[None]) -> None:
        (self._folder / "gate").touch()
        await handle.result(timeout=PATIENCE)
        (self._folder / "gate").unlink()

    async def _next_start(self) -> tuple[int, float]:
        """Who begins the job next, and when."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if len(lines := starts(self._folder)) > self._begun:
                self._begun = len(lines)
                return lines[-1]
            await asyncio.sleep(0.01)
        raise TimeoutError("the job does not begin")

    def _reap(self) -> None:
        for member in self._members:
            member.poll()

    def end(self) -> None:
        for member in self._members:
            _end(member)


def _end(member: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(member.pid).children(recursive=True):
            child.kill()
    member.kill()
    member.wait()


def starts(folder: Path) -> list[tuple[int, float]]:
    """Who began the job, and when, each time."""
    with contextlib.suppress(FileNotFoundError):
        words = [line.split() for line in (folder / "starts").read_text().splitlines()]
        return [(int(pid), float(at)) for pid, at in words]
    return []


class _Peer:
    """Two workers of a peer, one job, one kill."""

    def __init__(self, engine: EngineName, side: SideName, store: str, folder: Path) -> None:
        command, env = program(engine, side, "recovering")
        self._command, self._env, self._folder = [*command, store, str(folder)], os.environ | env, folder
        self._members: list[subprocess.Popen[bytes]] = []
        self.killed: float | None = None

    def start(self) -> None:
        subprocess.run([*self._command, "submit"], cwd=ROOT, env=self._env, check=True, capture_output=True)
        for _ in range(2):
            quiet = subprocess.DEVNULL
            self._members.append(subprocess.Popen(self._command, cwd=ROOT, env=self._env, stdout=quiet, stderr=quiet))

    def kill(self) -> bool:
        """Kill the one that has the job, if one has it."""
        if lines := starts(self._folder):
            os.kill(lines[0][0], signal.SIGKILL)
            self.killed = time.time()
        return bool(lines)

    def recovered(self) -> float | None:
        """Seconds from the kill to the next start."""
        lines = starts(self._folder)
        return lines[1][1] - self.killed if len(lines) > 1 and self.killed is not None else None

    def end(self) -> None:
        for member in self._members:
            _end(member)


def recovery(
    engine: EngineName, stores: Stores, sides: tuple[SideName, ...], *, turns: int, give_up: float = GIVE_UP
) -> tuple[dict[Case, Found], dict[SideName, Found]]:
    """What came of each case of headrace, and of each peer; the peers wait at the same time."""
    ours, theirs = dict[Case, Found](), dict[SideName, Found]()
    progress = Progress(len(CASES) * turns + 1)
    for case in CASES if "headrace" in sides else ():
        ours[case] = Found()
        with stores.fresh() as store, TemporaryDirectory() as folder:
            scene = _Scene(store, Path(folder), case)
            try:
                asyncio.run(scene.run(turns, ours[case], progress))
            finally:
                scene.end()
    progress.step("peers")
    with ExitStack() as stack:
        peers = list[tuple[SideName, _Peer]]()
        for side in PEERS[engine]:
            if side in sides:
                theirs[side] = Found()
                for _ in range(min(turns, PEER_TURNS)):
                    try:
                        peers.append((side, stack.enter_context(_peer(engine, side, stores))))
                    except Exception as error:
                        theirs[side].why = f"{type(error).__name__}: {error}"
                        break
        _watch(peers, theirs, give_up)
    progress.done()
    return ours, theirs


@contextmanager
def _peer(engine: EngineName, side: SideName, stores: Stores) -> Iterator[_Peer]:
    with stores.fresh() as store, TemporaryDirectory() as folder:
        peer = _Peer(engine, side, store, Path(folder))
        try:
            peer.start()
            deadline = time.monotonic() + PATIENCE
            while not starts(Path(folder)):
                if time.monotonic() > deadline:
                    raise TimeoutError("its job does not begin")
                time.sleep(0.1)
            yield peer
        finally:
            peer.end()


def _watch(peers: list[tuple[SideName, _Peer]], theirs: dict[SideName, Found], give_up: float) -> None:
    time.sleep(2)
    for _, peer in peers:
        peer.kill()
    waiting, deadline = peers, time.monotonic() + give_up
    while waiting and time.monotonic() < deadline:
        again = []
        for side, peer in waiting:
            if (seconds := peer.recovered()) is not None:
                theirs[side].seconds.append(seconds)
            else:
                again.append((side, peer))
        waiting = again
        time.sleep(0.1)
    for side, _ in waiting:
        theirs[side].lost += 1


def recovery_lines(engine: EngineName, ours: dict[Case, Found], theirs: dict[SideName, Found]) -> Iterator[str]:
    """Median and worst."""
    bound = BOUND[engine]
    yield "seconds from kill -9 of a worker to the next start of its job; median, worst"
    for case, found in ours.items():
        mark = "✓" if max(found.seconds) <= bound else "✗"
        rest = ""
        if found.starting:
            rest = f"; of these {statistics.median(found.starting):.1f} s to start the process"
        limit = f"   ≤ {bound:g}"
        name = f"headrace, {case.name}"
        yield f"  {mark} {name:<46} {_figures(found)}{limit}, {len(found.seconds)} times{rest}"
    for side, found in theirs.items():
        yield f"    {LABELS[side] + ', two workers, defaults':<46} {_figures(found)}"


def _figures(found: Found) -> str:
    if found.why:
        return f"not run: {found.why}"
    if not found.seconds:
        return f"not recovered after {GIVE_UP:.0f} s, {found.lost} times of {found.lost}"
    lost = f", not recovered after {GIVE_UP:.0f} s: {found.lost} times" if found.lost else ""
    times = f", {len(found.seconds)} times" if found.lost else ""
    return f"{statistics.median(found.seconds):>6.2f} {max(found.seconds):>6.2f}{times}{lost}"
