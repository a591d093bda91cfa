"""What an App does to have a worker leave, wherever it runs."""

from __future__ import annotations

from uuid import UUID

import msgspec

from headrace.client.admin import workers
from headrace.client.session import Session
from headrace.core import audit
from headrace.engine import WorkerRow
from headrace.engine.bus import Hint, Topic
from headrace.errors import UnknownWorker
from headrace.worker.draining import DRAIN, wish_about

__all__ = ["drain_worker"]


async def drain_worker(session: Session, id: UUID, by: str | None) -> WorkerRow:
    """Wish that a worker leaves; the worker as it was then."""
    engine, now, rows = session.engine, session.host.clock.now(), await workers(session)
    row = next((one for one in rows if one.info.id == id), None)
    if row is None or row.beat.state == "dead":
        raise UnknownWorker(id)
    key, act = f"{DRAIN}{id}", audit.act("drain", now, by)
    if await wish_about(engine, id) is None:  # else, or if another is faster, it is wished already
        await engine.documents.put_setting(key, msgspec.json.encode({"by": by, "at": now}).decode(), 0, act)
    engine.bus.send(Hint(Topic.SETTINGS, (key,)))
    there = {f"{DRAIN}{one.info.id}" for one in rows}
    for wish in await engine.documents.settings(DRAIN):
        if wish.key not in there:  # a worker that was killed did not take it along
            await engine.documents.put_setting(wish.key, None, wish.rev)
    return row
