"""Making a worker known to the store, however long that takes."""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from headrace.engine import Engine, WorkerInfo
from headrace.engine.bus import WORKER, Hint, Topic
from headrace.errors import EngineError, StoreLost
from headrace.runtime.host import Host

__all__ = ["register"]

_log = logging.getLogger("headrace.worker")


async def register(engine: Engine, host: Host, info: WorkerInfo, stopping: asyncio.Event) -> None:
    """Register the worker, and try again while the store is away.

    :raises EngineError: asked to stop meanwhile, or the store does not come back
    """
    info, pause = replace(info, lease=engine.rules.lease), 0.1
    while True:
        try:
            await engine.workers.register(info, host.clock.now())
            engine.bus.send(Hint(Topic.SETTINGS, (f"{WORKER}{info.id}",)))
            return
        except StoreLost:
            raise
        except EngineError as error:
            _log.warning("the worker could not register, trying on: %s", error)
            if await host.wait(stopping, pause):
                raise
            pause = min(pause * 2, 5.0)
