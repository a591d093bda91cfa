"""A worker process that claims so many jobs, says so, and holds them until it is killed; its store is HEADRACE_URL.

To the store it is a worker that has called the handlers of all of them and has not stored an end yet.
"""

from __future__ import annotations

import asyncio
import sys
from uuid import uuid4

from headrace.core.lifecycle.claim import ClaimRequest
from headrace.engine import Claimed, WorkerInfo
from tests.crash.poisoned import app

_MOST = 1000


async def main(wanted: int) -> None:
    """Hold so many jobs."""
    async with app:
        engine, host = app.session.engine, app.session.host
        id = uuid4()
        held = await engine.workers.attend(id)
        assert held is not None, "nothing would tell others that this process has ended"
        now = host.clock.now()
        info = WorkerInfo(id=id, host=host.name, pid=host.pid, started_at=now, concurrency=wanted, proof=held.proof)
        await engine.workers.register(info, now)
        profiles, count = frozenset(one.id for one in (await engine.documents.profiles()).profiles), 0
        while count < wanted:
            n = min(_MOST, wanted - count)
            ask = ClaimRequest(n=n, free=n, profiles=profiles, queues=None, lead=0.0)
            claimed = await engine.jobs.claim(id, ask, host.dice.token(), host.clock.now())
            assert isinstance(claimed, Claimed), claimed
            assert claimed.jobs, "there are no more jobs"
            count += len(claimed.jobs)
        print(count, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
