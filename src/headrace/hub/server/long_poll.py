"""Waiting within a request: for a limited time, and only while the hub serves and the client is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from headrace.http.problems import Problem
from headrace.hub.server.operation import OperationRequest

__all__ = ["wait_within"]

T = TypeVar("T")


async def wait_within(ask: OperationRequest, seconds: float, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of the work; None: time is up, or the hub begins to stop.

    :raises ClientDisconnect: the client is gone
    :raises Problem: 401, the caller's key was revoked meanwhile
    """
    working, revoked = asyncio.create_task(work), asyncio.Event()
    forget = ask.hub.authenticator.on_revoked(lambda key: revoked.set() if key == ask.caller.key else None)
    leaving, *others = map(asyncio.create_task, (_left(ask.request), ask.hub.draining.wait(), revoked.wait()))
    tasks = (working, leaving, *others)
    try:
        if ask.hub.authenticator.knows(ask.caller):  # it may have been revoked between the check and this subscription
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        else:
            revoked.set()
        if revoked.is_set():
            raise Problem(401, "key", "A key is needed", "the key was revoked while the request waited")
        if working.done():
            return working.result()
        if leaving.done():
            raise ClientDisconnect
        return None
    finally:
        forget()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
