"""Real worker processes on one store: started, killed, frozen and thawed by a test."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from headrace import App
from tests.support.forks import HEADRACE, Command
from tests.support.servers.postgres import shared

ROOT = Path(__file__).resolve().parents[2]


class Crew:
    """The worker processes of one test; whatever is left at its end is killed."""

    def __init__(self, url: str, folder: Path, module: str, settings: dict[str, str]) -> None:
        self.url, self._folder, self._module = url, folder, module
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._env = os.environ | {"HEADRACE_URL": url, "PYTHONPATH": path} | settings
        self.members: list[subprocess.Popen[bytes]] = []

    def hire(self, *flags: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start one more worker process."""
        with self.log(len(self.members)).open("wb") as log:
            member = Command(
                [*HEADRACE, "worker", self._module, *flags],
                cwd=ROOT,
                env=self._env | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.members.append(member)
        return member

    def log(self, index: int) -> Path:
        """What the process of this number printed."""
        return self._folder / f"worker-{index}.log"

    def said(self, member: subprocess.Popen[bytes]) -> str:
        """What it has printed so far."""
        return self.log(self.members.index(member)).read_text()

    def kill(self, member: subprocess.Popen[bytes]) -> None:
        """End it without warning."""
        member.kill()
        member.wait()

    async def kill_at_work(self, app: App, dice: random.Random | None = None) -> bool:
        """End the oldest of those that hold jobs, or any, without warning; False if nobody holds any just now.

        It is looked at again while it stands still: what it holds then, it does not live to let go of.
        """
        held = {row.info.pid for row in await app.workers.list() if row.holds}
        busy = [one for one in self.members if one.poll() is None and one.pid in held]
        for member in dice.sample(busy, len(busy)) if dice else busy:
            self.freeze(member)
            if any(row.holds for row in await app.workers.list() if row.info.pid == member.pid):
                self.kill(member)
                return True
            self.thaw(member)
        return False

    def freeze(self, member: subprocess.Popen[bytes]) -> None:
        """Stop it in its tracks."""
        member.send_signal(signal.SIGSTOP)

    async def freeze_at_rest(self, member: subprocess.Popen[bytes]) -> None:
        """Stop it at a moment when it holds no lock of the store: whoever stands still with one stops everybody."""
        while True:
            self.freeze(member)
            await asyncio.sleep(0.1)  # what it had sent before is answered
            if await asyncio.to_thread(is_free, self.url):
                return
            self.thaw(member)
            await asyncio.sleep(0.05)

    def thaw(self, member: subprocess.Popen[bytes]) -> None:
        """Let it go on."""
        member.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Let whatever still runs end what it has at hand, and end."""
        running = [member for member in self.members if member.poll() is None]
        for member in running:
            member.terminate()
        for member in running:
            member.wait()

    def dismiss(self) -> None:
        """Kill whatever still runs."""
        for member in self.members:
            if member.poll() is None:
                member.send_signal(signal.SIGCONT)
                self.kill(member)


def is_free(url: str) -> bool:
    """Whether nobody writes to the store, and nobody holds a lock on its workers or jobs."""
    kind, _, place = url.partition("://")
    if kind == "sqlite":
        connection = apsw.Connection(place.removeprefix("/"))
        try:
            connection.execute("BEGIN IMMEDIATE; ROLLBACK")
        except apsw.BusyError:
            return False
        finally:
            connection.close()
        return True
    schema = url.partition("schema=")[2]
    held = f"""SELECT 1 FROM pg_locks WHERE relation IN ('{schema}.workers'::regclass, '{schema}.jobs'::regclass)"""
    return not shared().execute(held)


@contextmanager
def crew(
    url: str, folder: Path, module: str = "tests.crash.app:app", *, beat: float = 0.4, lease: float = 1.5
) -> Iterator[Crew]:
    """Worker processes with short leases."""
    made = Crew(url, folder, module, {"HEADRACE_BEAT": str(beat), "HEADRACE_LEASE": str(lease)})
    try:
        yield made
    finally:
        made.dismiss()
