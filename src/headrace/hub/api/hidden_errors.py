"""Hides errors from customers, in every document that leaves the hub."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from headrace.core.auth.api_keys import Permissions
from headrace.core.hidden_errors import hidden_error, hidden_group, hidden_payload
from headrace.core.stats.failures import FailureGroup
from headrace.core.webhooks.delivery import TASK
from headrace.hub.api.documents import JobView
from headrace.hub.options import HubOptions

__all__ = ["hidden_document", "hides"]


def hides(options: HubOptions, caller: Permissions) -> bool:
    """Return whether this caller sees references instead of the texts of errors."""
    return options.errors == "hidden" and caller.customer is not None


def hidden_document(document: Any) -> Any:
    """Return a document as a customer gets it, with errors hidden in all its jobs and groups of failures."""
    if isinstance(document, JobView):
        return _hidden_view(document)
    if isinstance(document, FailureGroup):
        return hidden_group(document)
    if isinstance(document, tuple | list):
        return tuple(map(hidden_document, document))
    if isinstance(document, msgspec.Struct):
        fields = {name: getattr(document, name) for name in document.__struct_fields__}
        changed = {name: hidden_document(one) for name, one in fields.items() if isinstance(one, _HOLDING)}
        return replace(document, **changed) if changed else document
    return document


_HOLDING = (msgspec.Struct, tuple, list)


def _hidden_view(job: Any) -> Any:
    if job.task == TASK:
        return replace(job, payload=msgspec.Raw(hidden_payload(bytes(job.payload))))
    return job if job.error is None else replace(job, error=hidden_error(job.error, job.id, job.attempt))
