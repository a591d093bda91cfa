"""Request keys: the same request, sent again, is answered with the job that it made the first time."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any

from headrace.core.customers import own
from headrace.core.job import Job, Values

__all__ = ["hash_of", "is_repeat", "request_of"]

_EXACT = 2**53
"""Up to here, a number with a fraction of zero is the same number without one."""


def _number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


def hash_of(
    payload_text: str,
    route: Mapping[str, Any] | None = None,
    query: Values | None = None,
    uncounted: Collection[str] = (),
) -> str:
    """What two requests have in common that are the same: order of fields, spaces and escapes do not count.

    ``route`` and ``query``: the parameters of an HTTP request, which count like its payload. ``uncounted``: the fields
    of the payload that do not count, such as what the server found out by itself.
    """
    said: Any = json.loads(payload_text, parse_float=_number)
    if uncounted:
        said = {name: value for name, value in said.items() if name not in uncounted}
    if route or query:
        said = [said, route or {}, query or {}]
    canonical = json.dumps(said, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return sha256(canonical.encode()).hexdigest()


def request_of(job: Job) -> tuple[str, str] | None:
    """What no two stored jobs have in common: the task, and the request key of its customer; None: it has no key."""
    key = job.spec.request_key
    return None if key is None else (job.spec.task, own(job.spec.customer, key))


def is_repeat(job: Job, first: Job) -> bool:
    """Whether a job with the request key of ``first`` is the same request; otherwise the key was used for another."""
    return job.spec.request_hash == first.spec.request_hash
