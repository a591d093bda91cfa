"""The table of operations: what routes, the OpenAPI document and the tests of scopes and customers are made from."""

from __future__ import annotations

from headrace.hub import about, acting, docs, health, keys, looking, openapi, rooms, submits
from headrace.hub.live import events
from headrace.hub.operation import Operation
from headrace.hub.rpc import verbs
from headrace.hub.webhooks import routes as webhooks
from headrace.hub.work import table as work

__all__ = ["ENGINE", "OPERATIONS"]

OPERATIONS: tuple[Operation, ...] = (
    *submits.OPERATIONS,
    *looking.OPERATIONS,
    *work.OPERATIONS,
    *acting.OPERATIONS,
    *about.VERSION_OPERATIONS,
    *keys.OPERATIONS,
    *events.OPERATIONS,
    *rooms.OPERATIONS,
    *webhooks.OPERATIONS,
    *health.OPERATIONS,
    *openapi.OPERATIONS,
    *docs.OPERATIONS,
)
"""Every operation over HTTP that is documented; the ones that are asked for most are first."""

ENGINE: tuple[Operation, ...] = verbs.OPERATIONS
"""What remote engines ask for; it is in no document, and changes with headrace."""
