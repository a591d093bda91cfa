"""``worker --metrics-port``: metrics for Prometheus, served on a thread of their own.

So a scrape waits for the worker's event loop no more than that for a scrape, and shows how a loop is that stands still.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from headrace.cli.process.health import Address
from headrace.errors import MissingExtra

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["check", "serving"]

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def check() -> None:
    """:raises MissingExtra: what serves metrics is not installed"""
    if find_spec("prometheus_client") is None:
        raise MissingExtra("--metrics-port", "prometheus-client", "prometheus")


@contextmanager
def serving(app: App, where: Address) -> Iterator[Address]:
    """Serve the metrics of the App, and whatever else is in the default registry, at this address; port 0: a free one.

    :raises OSError: the address cannot be used
    """
    check()
    from prometheus_client import REGISTRY, make_wsgi_app

    from headrace.contrib.prometheus import HeadraceCollector

    server = _Server(where)
    server.set_app(_at_metrics(make_wsgi_app(REGISTRY)))
    collector = HeadraceCollector(app)
    with ExitStack() as stack:
        stack.callback(server.server_close)
        try:
            REGISTRY.register(collector)
            stack.callback(REGISTRY.unregister, collector)
        except ValueError:  # the module of the App has registered one of its own, which tells the same
            pass
        # Whether to stop is looked at as often as a worker ticks.
        thread = threading.Thread(target=server.serve_forever, args=(0.25,), name="headrace-metrics", daemon=True)
        thread.start()
        stack.callback(server.shutdown)
        yield where._replace(port=server.server_port)


def _at_metrics(page: Wsgi) -> Wsgi:
    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/metrics":
            return page(environ, start)
        start("404 Not Found", [("Content-Type", "text/plain")])
        return [b"there is /metrics\n"]

    return answer


class _Handler(WSGIRequestHandler):
    timeout = 10  # a client that says nothing does not keep its thread for ever

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, where: Address) -> None:
        if ":" in where.host:
            self.address_family = socket.AF_INET6
        super().__init__((where.host, where.port), _Handler)

    def server_bind(self) -> None:
        # Not that of HTTPServer, which asks the name server what this machine is called.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()
