"""A process of its own on a shared SQLite file: ``python -m tests.support.programs.sqlite_child VERB FILE …``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from headrace.core.attempt import Completed
from headrace.core.change import Applied
from headrace.core.defaults import Rules
from headrace.core.job import Spec
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.deduplication import hash_of
from headrace.core.lifecycle.execution import finish
from headrace.core.lifecycle.submission import submit
from headrace.engine import Claimed, Refused, WorkerInfo
from headrace.engines.sqlite import SqliteEngine
from headrace.runtime.host import Host


def say(*words: object) -> None:
    """Tell the parent, at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def insert(engine: SqliteEngine, host: Host, count: str, batch: str) -> None:
    """Insert so many jobs; say each id once it is acknowledged."""
    left = int(count)
    while left > 0:
        now = host.clock.now()
        spec = Spec(task="work", created_at=now)
        jobs = [submit(host.dice.new_id(now), spec, '{"text":"abc"}', now) for _ in range(min(left, int(batch)))]
        await engine.jobs.insert(jobs, now)
        for job in jobs:
            say(job.id)
        left -= len(jobs)


async def request(engine: SqliteEngine, host: Host, count: str) -> None:
    """Insert one request so many times at once; say the id of the job that each is answered with."""
    now = host.clock.now()
    spec = Spec(task="work", created_at=now, request_key="key", request_hash=hash_of('{"a":1}'))
    jobs = [submit(host.dice.new_id(now), spec, '{"a":1}', now) for _ in range(int(count))]
    for [answer] in await asyncio.gather(*(engine.jobs.insert([job], now) for job in jobs)):
        assert not isinstance(answer, Refused)
        say(answer.job.id)


async def drain(engine: SqliteEngine, host: Host, total: str) -> None:
    """Claim and complete until so many jobs have ended in all; say each id completed here."""
    now = host.clock.now()
    worker = host.dice.new_id(now)
    await engine.workers.register(WorkerInfo(id=worker, host="child", pid=host.pid, started_at=now, concurrency=9), now)
    while (await engine.records.ledger()).ended < int(total):
        now = host.clock.now()
        profiles = frozenset(profile.id for profile in (await engine.documents.profiles()).profiles)
        claimed = await engine.jobs.claim(worker, ClaimRequest(n=9, free=9, profiles=profiles), host.dice.token(), now)
        assert isinstance(claimed, Claimed)
        changes = [finish(job, Completed("1"), now, 0.5, engine.rules, now) for job in claimed.jobs]
        verdicts = await engine.jobs.apply([replace(change, id=host.dice.token()) for change in changes], now)
        assert all(isinstance(verdict, Applied) for verdict in verdicts)
        for job in claimed.jobs:
            say(job.id)


async def begin(engine: SqliteEngine, host: Host) -> None:
    """Only open the file."""
    say("open")


async def main(verb: str, path: str, *words: str) -> None:
    """Open a session and do it."""
    verbs: dict[str, Callable[..., Awaitable[None]]] = {
        "insert": insert,
        "request": request,
        "drain": drain,
        "open": begin,
    }
    host = Host()
    engine = SqliteEngine(Path(path), rules=Rules(), host=host)
    await engine.open()
    await verbs[verb](engine, host, *words)
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
