"""``worker --health``: probes and metrics for Prometheus, served on a thread of their own.

A request does not wait for the worker's event loop, nor that for a request: a loop that stands still is reported.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from headrace.cli.options import Address
from headrace.errors import MissingExtra

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.worker.worker import Worker

__all__ = ["serving", "vitals"]

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@contextmanager
def serving(app: App, worker: Worker, where: Address) -> Iterator[Address]:
    """Serve the state of the worker, with the metrics of the App and of the default registry; port 0: a free one.

    :raises OSError: the address cannot be used
    """
    with ExitStack() as stack:
        server = _Server(where)
        stack.callback(server.server_close)
        pages = {"/healthz": _health(worker), "/livez": _life(worker), "/metrics": _metrics(app, stack)}
        server.set_app(_at(pages))
        # Checked for a stop as often as a worker ticks.
        thread = threading.Thread(target=server.serve_forever, args=(0.25,), name="headrace-health", daemon=True)
        thread.start()
        stack.callback(server.shutdown)
        yield where._replace(port=server.server_port)


def vitals(worker: Worker) -> dict[str, Any]:
    """Return the state of the worker at this moment; may be called on any thread."""
    stats = worker.stats
    facts: dict[str, Any] = {"healthy": worker.healthy, "worker": str(worker.id), "state": stats.state}
    facts |= {name: getattr(stats, name) for name in ("busy", "buffered", "stuck_threads")}
    facts |= {"concurrency": worker.concurrency, "silence_seconds": round(stats.silence, 3)}
    return facts | {name: getattr(stats, name) for name in ("done", "failed", "released", "stale")}


def _health(worker: Worker) -> Wsgi:
    def page(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        facts = vitals(worker)
        status = HTTPStatus.OK if facts["healthy"] else HTTPStatus.SERVICE_UNAVAILABLE
        return _reply(start, status, json.dumps(facts), "application/json")

    return page


def _life(worker: Worker) -> Wsgi:
    def page(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        stood = worker.host.clock.monotonic() - worker.ticked_at
        status = HTTPStatus.OK if stood < worker.engine.rules.lease else HTTPStatus.SERVICE_UNAVAILABLE
        return _reply(start, status, f"the event loop moved {max(0.0, stood):.1f} s ago")

    return page


def _metrics(app: App, stack: ExitStack) -> Wsgi:
    try:
        from headrace.contrib.prometheus import HeadraceCollector
    except MissingExtra as missing:
        text = str(missing)
        return lambda _, start: _reply(start, HTTPStatus.NOT_IMPLEMENTED, text)
    from prometheus_client import REGISTRY, make_wsgi_app

    collector = HeadraceCollector(app)
    try:
        REGISTRY.register(collector)
        stack.callback(REGISTRY.unregister, collector)
    except ValueError:  # the module of the App has registered one of its own, which has the same metrics
        pass
    return make_wsgi_app(REGISTRY)


def _at(pages: dict[str, Wsgi]) -> Wsgi:
    def route(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if (page := pages.get(environ["PATH_INFO"])) is None:
            return _reply(start, HTTPStatus.NOT_FOUND, "there are " + ", ".join(pages))
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _reply(start, HTTPStatus.METHOD_NOT_ALLOWED, "GET only")
        body = page({**environ, "REQUEST_METHOD": "GET"}, start)
        return body if environ["REQUEST_METHOD"] == "GET" else []

    return route


def _reply(start: Callable[..., Any], status: HTTPStatus, text: str, kind: str = "text/plain") -> list[bytes]:
    start(f"{status.value} {status.phrase}", [("Content-Type", kind)])
    return [text.encode() + b"\n"]


class _Handler(WSGIRequestHandler):
    timeout = 10  # a client that sends nothing does not keep its thread for ever

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, where: Address) -> None:
        if ":" in where.host:
            self.address_family = socket.AF_INET6
        super().__init__((where.host, where.port), _Handler)

    def server_bind(self) -> None:
        # Not that of HTTPServer, which looks up the name of this machine.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that is gone, or silent for too long
