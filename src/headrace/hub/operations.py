"""The table of operations: what routes, the OpenAPI document and the tests of scopes and customers are made from."""

from __future__ import annotations

from headrace.hub import api, health, rpc
from headrace.hub import health as about
from headrace.hub.api import actions, jobs, keys, submit, webhooks
from headrace.hub.live import operations
from headrace.hub.openapi import document, page
from headrace.hub.remote_workers import operations as work
from headrace.hub.server.operation import Operation

__all__ = ["ENGINE", "OPERATIONS"]

OPERATIONS: tuple[Operation, ...] = (
    *submit.OPERATIONS,
    *jobs.OPERATIONS,
    *work.OPERATIONS,
    *actions.OPERATIONS,
    *about.VERSION_OPERATIONS,
    *keys.OPERATIONS,
    *operations.OPERATIONS,
    *api.OPERATIONS,
    *webhooks.OPERATIONS,
    *health.OPERATIONS,
    *document.OPERATIONS,
    *page.OPERATIONS,
)
"""Every documented operation over HTTP; the most frequent ones are first."""

ENGINE: tuple[Operation, ...] = rpc.OPERATIONS
"""Operations for remote engines; they are in no document, and change with headrace."""
