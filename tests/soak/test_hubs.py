"""Hubs and workers of every kind are killed, frozen, cut off and started anew, for minutes on end.

At the end each job that was accepted has ended once, every message of its webhook was delivered in its order, the books
agree, and nobody holds anything. ``SOAK_SECONDS`` says how long it goes on, on each store; ten minutes if not set.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import msgspec
import pytest

from headrace.client.submission.by_name import draft_with_warnings
from headrace.core.job import Job
from headrace.core.status import ENDED, HELD, Status
from headrace.core.webhooks.delivery import TASK
from tests.soak.hubs import KEYS, RETRY, app, keyed, near
from tests.support.crew import ROOT, is_free
from tests.support.invariants import all_jobs, check_store
from tests.support.servers import schemas
from tests.support.servers.proxy import Proxy
from tests.support.until import until

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
CALM = 600.0
"""Seconds after the last kill by which everything has ended: a message that was refused a few times waits a while."""
MOST = 250
"""Jobs that may be live at once, messages included: it must be possible to catch up."""

pytestmark = pytest.mark.timeout(SECONDS + CALM + 300)

HURRIED = {"HEADRACE_BEAT": "0.5", "HEADRACE_LEASE": "4"}
WORKER = (sys.executable, "-m", "headrace", "worker", "tests.soak.hubs:app", "--concurrency", "4", "--grace", "2s")


@dataclass
class Victim:
    """A process that is started anew whenever it was killed."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.starts += 1

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def end(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.send(number)
            try:
                await asyncio.to_thread(self.process.wait, 40)
            except subprocess.TimeoutExpired:
                self.process.kill()
                await asyncio.to_thread(self.process.wait)

    async def freeze(self, url: str) -> bool:
        """Stop it in its tracks; False: it would take the store's only lock with it."""
        self.send(signal.SIGSTOP)
        await asyncio.sleep(0.05)  # what it had sent before is answered
        if not url.startswith("sqlite") or await asyncio.to_thread(is_free, url):
            return True
        self.send(signal.SIGCONT)
        return False


@dataclass
class Receiver:
    """Takes messages, in the order in which they come; refuses some, and does not answer others that it has taken."""

    dice: random.Random
    heard: dict[UUID, list[tuple[str, str]]] = field(default_factory=dict)
    """By job: the id and the type of each message as it came."""
    rude: bool = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            headers = dict(line.split(": ", 1) for line in head.strip().split("\r\n")[1:])
            body = await reader.readexactly(int(headers["content-length"]))
            chance = self.dice.random() if self.rude else 1.0
            if chance >= 0.02:
                message = msgspec.json.decode(body)
                said = (headers["webhook-id"], message["type"].removeprefix("job."))
                self.heard.setdefault(UUID(message["data"]["job_id"]), []).append(said)
            if chance >= 0.04:  # else it has taken it, and nobody is told
                status = "503 Service Unavailable" if chance < 0.02 else "204 No Content"
                writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
                await writer.drain()
        writer.close()


@dataclass
class Scene:
    """The store, the hubs, the workers, and what was accepted."""

    url: str
    hubs: list[Victim]
    addresses: list[str]
    workers: list[Victim]
    proxies: list[Proxy]
    dice: random.Random
    accepted: set[UUID] = field(default_factory=set)
    deeds: Counter[str] = field(default_factory=Counter)
    calm: bool = False

    # -- submitting

    async def submit(self, n: int) -> None:
        """One job, by one of the ways there are."""
        seconds, fails = self.dice.choice((0.0, 0.05, 0.3, 1.0)), self.dice.random() < 0.15
        match self.dice.randrange(4):
            case 0:
                self.accepted.add((await near.submit(n, seconds, fails)).id)
            case 1:
                self.accepted.add((await keyed.submit(n % KEYS, n, seconds / 4)).id)
            case 2:
                payload = {"n": n, "seconds": seconds, "fails": fails}
                draft, _ = await draft_with_warnings(app, "far", payload, {"retry": RETRY})
                self.accepted.add((await draft.submit()).id)
            case _:
                self.accepted.add(await self._post("far", {"n": n, "seconds": seconds, "fails": fails}, n))

    async def _post(self, task: str, payload: dict[str, Any], n: int) -> UUID:
        """Submit at any hub, until one says that it is stored."""
        body = {"task": task, "payload": payload, "idempotency_key": f"soak {n}"}
        policy = {"max_retries": RETRY.max_retries, "backoff": "fixed", "initial": 0.1}
        async with httpx2.AsyncClient(trust_env=False, timeout=4) as client:
            while True:
                with suppress(httpx2.HTTPError):
                    answer = await client.post(
                        f"{self.dice.choice(self.addresses)}/api/jobs", json=body | {"retry": policy}
                    )
                    if answer.status_code in (200, 201, 202):
                        return UUID(answer.json()["job_id"])
                    assert answer.status_code in (429, 500, 502, 503, 504), answer.text
                await asyncio.sleep(0.2)

    async def load(self) -> None:
        """Submit on and on."""
        n, tasks = 0, set[asyncio.Task[None]]()
        while not self.calm:
            if len(tasks) < 60 and await self._live() < MOST:
                for _ in range(self.dice.randrange(1, 6)):
                    tasks.add(asyncio.create_task(self.submit(n)))
                    n += 1
            await asyncio.sleep(0.3)
            for task in [one for one in tasks if one.done()]:
                tasks.discard(task)
                task.result()
        await asyncio.gather(*tasks)

    async def _live(self) -> int:
        statuses = (await app.stats.counts()).statuses
        return sum(count for status, count in statuses.items() if status not in ENDED)

    # -- what happens to them

    async def torment(self, seconds: float) -> None:
        """Do one bad thing after another, several at a time."""
        until_ = time.monotonic() + seconds

        async def hand(whom: list[Victim]) -> None:
            while time.monotonic() < until_:
                await self._hurt(self.dice.choice(whom))
                await asyncio.sleep(self.dice.uniform(0.5, 4.0))

        async def cuts() -> None:
            while time.monotonic() < until_:
                await asyncio.sleep(self.dice.uniform(1.0, 6.0))
                proxy = self.dice.choice(self.proxies)
                deed = self.dice.choice(("cut", "silence"))
                getattr(proxy, deed)()
                self.deeds[deed] += 1

        half = len(self.workers) // 2
        await asyncio.gather(hand(self.hubs), hand(self.workers[:half]), hand(self.workers[half:]), cuts())

    async def _hurt(self, victim: Victim) -> None:
        kind = "hub" if victim in self.hubs else "worker"
        deed = self.dice.choice(("kill", "kill", "freeze", "stop"))
        self.deeds[f"{deed} {kind}"] += 1
        if deed == "freeze":
            if await victim.freeze(self.url):
                try:
                    await asyncio.sleep(self.dice.choice((0.5, 2.0, 6.0)))
                finally:
                    victim.send(signal.SIGCONT)
            return
        await victim.end(signal.SIGKILL if deed == "kill" else signal.SIGTERM)
        await asyncio.sleep(self.dice.uniform(0.0, 2.0))
        victim.start()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@asynccontextmanager
async def scene(url: str, folder: Path, dice: random.Random) -> AsyncIterator[Scene]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    base = clean | HURRIED | {"PYTHONPATH": path}

    def victim(name: str, *command: str, at: str = url) -> Victim:
        return Victim(name, command, base | {"HEADRACE_URL": at}, folder / f"{name}.log")

    ports = [free_port(), free_port()]
    addresses = [f"http://127.0.0.1:{port}" for port in ports]
    serve = (sys.executable, "-m", "headrace", "hub", "--worker-lease", "5s", "--grace", "3s", "--no-access-log")
    webhooks = ("--webhook-allow", "127.0.0.0/8", "--webhook-http")
    hubs = [victim(f"hub{n}", *serve, *webhooks, "--port", str(port)) for n, port in enumerate(ports)]
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy(address)) for address in addresses]
        roads = [proxy.url for proxy in proxies]
        roaming = (sys.executable, "-m", "tests.soak.roaming_worker")
        workers = [
            victim("direct0", *WORKER),
            victim("http0", *roaming, "http", "http0", *roads),
            victim("socket0", *roaming, "ws", "socket0", *roads),
            victim("direct1", *WORKER),
            victim("remote0", *WORKER, at=roads[0].replace("http", "hub+http", 1)),
            victim("socket1", *roaming, "ws", "socket1", *addresses),
        ]
        everyone = [*hubs, *workers]
        try:
            for one in everyone:
                one.start()
            yield Scene(url, hubs, addresses, workers, proxies, dice)
        finally:
            for one in everyone:
                if one.process is not None and one.process.poll() is None:
                    one.send(signal.SIGCONT)
                    await one.end()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


async def test_nothing_is_lost_or_doubled_and_every_message_comes_in_its_order(url: str, tmp_path: Path) -> None:
    dice = random.Random(os.environ.get("HEADRACE_SEED"))
    receiver = Receiver(dice)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    with app.override(url=url):
        async with app:
            await app.tasks.announce()
            port = server.sockets[0].getsockname()[1]
            await app.webhooks.add(f"http://127.0.0.1:{port}/", events=["status_change"])
            async with scene(url, tmp_path, dice) as played:
                loading = asyncio.create_task(played.load())
                tormenting = asyncio.create_task(played.torment(SECONDS))
                await asyncio.wait({loading, tormenting}, return_when=asyncio.FIRST_COMPLETED)
                played.calm, receiver.rude = True, False
                await tormenting
                await loading
                await until(lambda: _over(played), within=CALM, what="all jobs and messages have ended")
                await until(_holds_nothing, within=60, what="nobody holds anything")
                await check(played, receiver)
    server.close()


async def _over(played: Scene) -> bool:
    return not await played._live()


async def _holds_nothing() -> bool:
    usage = await app.limits.usage()
    held = [*usage.queues.values(), *usage.tasks.values(), *(n for one in usage.by_key.values() for n in one.values())]
    rows = await app.workers.list()
    return not any(held) and not any(row.holds for row in rows)


async def check(played: Scene, receiver: Receiver) -> None:
    """Whether all of it is as it must be."""
    found = {job.id: job for job in await all_jobs(app.session.engine)}
    jobs = {id: job for id, job in found.items() if job.task != TASK}
    told = sorted((job for job in found.values() if job.task == TASK), key=lambda job: job.seq)
    print(
        f"\n{played.url.partition(':')[0]}: {len(jobs)} jobs, {len(told)} messages, of which"
        f" {sum(map(len, receiver.heard.values())) - len(told)} came again; {dict(sorted(played.deeds.items()))}"
    )
    assert played.accepted == set(jobs), "what was accepted is there, and nothing else"
    assert {job.status for job in jobs.values()} == {Status.COMPLETED}
    assert not [job for job in found.values() if job.status in HELD]
    await check_store(app.session.engine)  # each was finished by one attempt, and no attempt came after it
    assert {job.status for job in told} == {Status.COMPLETED}, [job for job in told if job.status != Status.COMPLETED]
    messages: dict[UUID, list[tuple[str, str]]] = {}
    for one in told:
        payload = msgspec.json.decode(one.payload_text)
        said = (payload["id"], payload["message"]["type"].removeprefix("job."))
        messages.setdefault(UUID(payload["message"]["data"]["job_id"]), []).append(said)
    for id, job in jobs.items():
        _check_messages(job, messages[id], receiver.heard.get(id, []))
    verified = await app.store.verify()
    assert verified.ok, verified


def _check_messages(job: Job, stored: list[tuple[str, str]], heard: list[tuple[str, str]]) -> None:
    """Each message came, the first time in its order; only the same one came again, before the next."""
    [target] = job.told or ()
    assert len(stored) == target.count, (job.id, stored, target)
    assert list(dict.fromkeys(heard)) == stored, (job.id, stored, heard)
    types = [kind for _, kind in stored]
    assert (types[0], types[-1]) == ("submitted", "completed"), (job.id, types)
    assert Counter(types)["submitted"] == Counter(types)["completed"] == 1, (job.id, types)
    assert set(types[1:-1]) <= {"started", "retrying"}, (job.id, types)
    assert "started" in types, (job.id, types)
