"""Operations about the hub itself: health, readiness, metrics and version."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec
from starlette.responses import Response

from headrace.errors import StoreLost, Unavailable
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest

if TYPE_CHECKING:
    from headrace.hub.hub import Hub
from functools import cache
from importlib.metadata import version

__all__ = ["OPERATIONS", "VERSION_OPERATIONS", "Health", "Ready", "Version", "Vitals"]


_log = logging.getLogger("headrace.hub")

PROBE_TIMEOUT_SECONDS = 2.0
"""Seconds that the store may take to reply to a probe."""
WRITE_WAIT_SECONDS, WRITE_TIMEOUT_SECONDS = 0.5, 20.0
"""Seconds that a probe waits for a write, and that it may take: waiting for other writers makes a hub no less ready."""
PROBE_CACHE_SECONDS = 1.0
"""Seconds for which the result of a probe is cached, since anyone may probe, which must not load the store."""

Word = Literal["ok", "failed"]


class Health(msgspec.Struct, frozen=True):
    """Whether the process is healthy: if not, it should be restarted."""

    status: Word
    loops: dict[str, Word]
    """The loops that run beside the requests."""


class Ready(msgspec.Struct, frozen=True):
    """Whether the hub should get requests."""

    status: Literal["ready", "draining", "unready"]
    store: Word
    loops: dict[str, Word]
    secret: Word = "ok"
    """Whether it can sign leases of workers: ``HEADRACE_SECRET`` is that of the other hubs."""


class Vitals:
    """The health of a hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.loops: dict[str, Callable[[], bool]] = {}
        """By name, whether a loop that the hub depends on is alive; the code that starts a loop adds it."""
        self._asking: asyncio.Task[bool] | None = None
        self._ping: asyncio.Task[None] | None = None
        self._write: asyncio.Task[None] | None = None
        self._writing_since = 0.0
        self._refused: BaseException | None = None
        """Why the last write failed; None: it succeeded."""
        self._answered_at = float("-inf")
        self._up = False
        self.signs = True
        """Whether leases of workers can be signed here, as of the last probe of the store."""
        self._lost: StoreLost | None = None

    def of_loops(self) -> dict[str, Word]:
        """Return the state of each loop."""
        return {name: "ok" if alive() else "failed" for name, alive in self.loops.items()}

    async def store_answers(self) -> bool:
        """Return whether the store replies and takes writes, or did so a moment ago; one probe serves all requests."""
        if self._hub.app.host.clock.monotonic() < self._answered_at + PROBE_CACHE_SECONDS:
            return self._up
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def store_lost(self) -> StoreLost | None:
        """Return why the store does not come back; None: it may. It is probed when a loop has ended by itself."""
        if "failed" in self.of_loops().values():
            await self.store_answers()
        return self._lost

    async def _ask(self) -> bool:
        # Even cancelling a request to a hanging store may take long: so it goes on, and there is one at a time.
        app, monotonic = self._hub.app, self._hub.app.host.clock.monotonic
        if self._ping is None or self._ping.done():
            self._ping = asyncio.create_task(app.store.ping())
        if self._write is None or self._write.done():
            self._write, self._writing_since = asyncio.create_task(app.store.ping(write=True)), monotonic()
        await asyncio.wait({self._ping}, timeout=PROBE_TIMEOUT_SECONDS)
        await asyncio.wait({self._write}, timeout=WRITE_WAIT_SECONDS)
        error = (
            _error_of(self._ping) if self._ping.done() else TimeoutError(f"nothing within {PROBE_TIMEOUT_SECONDS:g} s")
        )
        self._lost = error if isinstance(error, StoreLost) else None
        if self._write.done():
            self._refused = _error_of(self._write)
        elif monotonic() - self._writing_since > WRITE_TIMEOUT_SECONDS:
            self._refused = TimeoutError(f"nothing within {WRITE_TIMEOUT_SECONDS:g} s")
        up = error is None and self._refused is None
        if self._up and not up:
            what = "does not answer" if error is not None else "takes no writes"
            _log.warning("the store %s: %s", what, error or self._refused)
        if up:
            await self._ask_secret()
        self._up, self._answered_at = up, monotonic()
        return up

    async def _ask_secret(self) -> None:
        # A hub that cannot sign replies 503 to workers: a balancer must route them elsewhere before their leases
        # expire.
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
                self.signs = await self._hub.fleet.signing.mismatch() is None

    async def close(self) -> None:
        """Stop probing."""
        asked = {task for task in (self._asking, self._ping, self._write) if task is not None}
        for task in asked:
            task.cancel()
        if asked:
            await asyncio.wait(asked, timeout=PROBE_TIMEOUT_SECONDS)


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()


async def health(ask: OperationRequest) -> OperationReply:
    """Return the health of the process."""
    loops = ask.hub.vitals.of_loops()
    well = "failed" not in loops.values()
    return OperationReply(Health("ok" if well else "failed", loops), 200 if well else 503)


async def ready(ask: OperationRequest) -> OperationReply:
    """Return whether the hub is ready for requests."""
    vitals = ask.hub.vitals
    up, loops = await vitals.store_answers(), vitals.of_loops()
    well = up and vitals.signs and "failed" not in loops.values()
    status: Literal["ready", "draining", "unready"] = "ready" if well else "unready"
    if ask.hub.draining.is_set():
        status = "draining"
    return OperationReply(Ready(status, _word(up), loops, _word(vitals.signs)), 200 if status == "ready" else 503)


def _word(fine: bool) -> Word:
    return "ok" if fine else "failed"


async def metrics(ask: OperationRequest) -> Response:
    """Return all metrics for Prometheus."""
    return Response(await ask.hub.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


OPERATIONS = (
    Operation(
        path="/healthz",
        summary="Whether the process is well",
        scope=None,
        bounded="nothing",
        do=health,
        gives={200: Health, 503: Health},
        answered={"status": "ok", "loops": {"keys": "ok", "maintenance": "ok", "webhooks": "ok"}},
    ),
    Operation(
        path="/readyz",
        summary="Whether the hub should be sent requests: the store answers and takes writes, and it does not stop",
        scope=None,
        bounded="nothing",
        do=ready,
        gives={200: Ready, 503: Ready},
        answered={
            "status": "ready",
            "store": "ok",
            "loops": {"keys": "ok", "maintenance": "ok", "webhooks": "ok"},
            "secret": "ok",
        },
    ),
    Operation(
        path="/metrics",
        summary="Figures for Prometheus",
        scope="read",
        do=metrics,
        gives={200: "text/plain"},
        answered="headrace_store_up 1.0\n",
    ),
)


class Version(msgspec.Struct, frozen=True):
    """The version of headrace that serves here."""

    headrace: str


@cache  # which reads and parses a file
def _version() -> Version:
    return Version(version("headrace"))


async def show_version(ask: OperationRequest) -> OperationReply:
    """Return the version of this hub."""
    return OperationReply(_version())


VERSION_OPERATIONS = (
    Operation(
        name="version",
        path="/api/version",
        summary="Which version of headrace answers",
        scope="read",
        bounded="nothing",
        do=show_version,
        gives={200: Version},
        answered={"headrace": "0.1.0"},
    ),
)
