"""``worker --health``: a few lines of HTTP that say how the worker is, for probes and for Prometheus."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click

__all__ = ["Address", "Vitals", "address", "metrics", "serve"]

MAX_REQUEST_BYTES = 8192
REQUEST_TIMEOUT_SECONDS = 5.0


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(value: str | Address) -> Address:
    """HOST:PORT, :PORT or PORT."""
    if isinstance(value, Address):
        return value
    host, _, port = value.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not HOST:PORT")
    return Address(host.strip("[]") or "127.0.0.1", int(port))


class Vitals(NamedTuple):
    """How a worker is, at the moment of asking."""

    healthy: bool
    facts: Mapping[str, Any]
    """What /healthz tells; numbers become gauges."""
    totals: Mapping[str, int]
    """What only grows; becomes counters."""


def metrics(vitals: Vitals) -> str:
    """The vitals in Prometheus' text format."""
    labels = "".join(f'{key}="{vitals.facts[key]}",' for key in ("worker", "state") if key in vitals.facts).rstrip(",")
    lines = ["# TYPE headrace_worker_healthy gauge", f"headrace_worker_healthy{{{labels}}} {int(vitals.healthy)}"]
    for name, value in vitals.facts.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            lines += [f"# TYPE headrace_worker_{name} gauge", f"headrace_worker_{name} {value:g}"]
    for name, value in vitals.totals.items():
        lines += [f"# TYPE headrace_worker_{name}_total counter", f"headrace_worker_{name}_total {value}"]
    return "\n".join(lines) + "\n"


def _answer(path: str, vitals: Vitals) -> tuple[int, str, str]:
    """Status, content type and body."""
    if path == "/healthz":
        body = json.dumps({"healthy": vitals.healthy, **vitals.facts, **vitals.totals}, default=str)
        return (200 if vitals.healthy else 503), "application/json", body + "\n"
    if path == "/metrics":
        return 200, "text/plain; version=0.0.4", metrics(vitals)
    return 404, "text/plain", "there are /healthz and /metrics\n"


async def serve(where: Address, ask: Callable[[], Vitals]) -> asyncio.Server:
    """Listen; every request is answered from what ``ask`` says at that moment.

    :raises OSError: the address cannot be used
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            method, path, *_ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
            status, kind, body = _answer(path.partition("?")[0], ask())
            if method not in ("GET", "HEAD"):
                status, kind, body = 405, "text/plain", "GET only\n"
            await _write(writer, status, kind, body, method != "HEAD")
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # a client that does not speak HTTP gets no answer
        finally:
            writer.close()

    return await asyncio.start_server(handle, where.host, where.port, limit=MAX_REQUEST_BYTES)


async def _write(writer: asyncio.StreamWriter, status: int, kind: str, body: str, with_body: bool) -> None:
    words = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}[status]
    data = body.encode()
    head = (
        f"HTTP/1.1 {status} {words}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode("latin-1") + (data if with_body else b""))
    await writer.drain()
