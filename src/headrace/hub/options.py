"""The settings of a hub, each with a default that is safe."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from headrace.core.times import seconds
from headrace.errors import ConfigError

__all__ = ["HubOptions"]

MIB = 1024 * 1024


class HubOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a hub is set up; the flags of ``headrace hub``."""

    host: str = "127.0.0.1"
    port: int = 8470
    root_path: str = ""
    """The path under which a proxy serves it, as in ``/jobs``."""
    proxy_headers: bool = False
    """Trust ``X-Forwarded-For`` and ``-Proto`` of a proxy on this machine, or of ``proxies``."""
    proxies: str = "127.0.0.1"
    certfile: str | None = None
    keyfile: str | None = None
    grace: float = 15.0
    """Seconds for requests to finish after SIGTERM."""
    linger: float = 0.0
    """Seconds after SIGTERM during which new requests are still served, so that a balancer can turn away first."""
    body_most: int = 2 * MIB
    bulk_most: int = 16 * MIB
    frame_most: int = 2 * MIB
    sockets: int = 10_000
    """Maximum connections of all kinds."""
    subscriptions: int = 1_000
    """Maximum for one socket."""
    submits_per_second: float | None = 100.0
    """Maximum for one key; None: no limit."""
    submit_burst: int = 200
    customer_jobs: int | None = 10_000
    """Maximum live jobs of one customer, if its key submits them; None: no limit."""
    customer_messages: int | None = 20_000
    """Maximum messages to the webhooks of one customer that are not delivered yet; None: no limit."""
    customer_webhooks: int = 10
    """Maximum subscriptions of one customer."""
    customer_priority: int = 89
    """Highest priority of a customer's jobs; higher ones are for the operator's own."""
    worker_lease: float = 60.0
    """Seconds of silence after which a worker connected to the hub counts as dead."""
    worker_grace: float = 10.0
    """Seconds in which a worker that lost its connection without a close frame must come back, at any hub; at least the
    time of one heartbeat (12.5 for heartbeats of 10 s) counts."""
    workers_per_key: int = 1_000
    """Maximum workers of one key at this hub."""
    read_timeout: float = 30.0
    """Seconds for a request's head, for its body, and for a reader that reads next to nothing."""
    keep_alive: float = 65.0
    """Seconds for which an idle connection is kept; longer than balancers keep theirs."""
    errors: Literal["shown", "hidden"] = "shown"
    """Whether keys with a customer see the text of errors; ``hidden``: they see a reference for the operator."""
    access_log: bool = True
    maintenance: bool = True
    """Sweep, prune and plan, if no other process does."""
    webhooks: bool = True
    """Deliver webhooks."""
    webhook_allow: tuple[str, ...] = ()
    """Networks that webhooks may go to although they are private, as in ``10.0.0.0/8``."""
    webhook_http: bool = False
    """Let webhooks go over plain http."""

    def __post_init__(self) -> None:
        for name in ("worker_lease", "worker_grace"):
            checked = seconds(getattr(self, name), name)
            if checked == 0:
                raise ConfigError(f"{name} must be above 0: it is in seconds")
            force_setattr(self, name, checked)
