"""Request keys over HTTP: the header that names a request, and whose key it is."""

from __future__ import annotations

from headrace.core.bounds import checked_key
from headrace.endpoints.asked import Asked
from headrace.errors import ConfigError
from headrace.web.problems import Fault, Problem

__all__ = ["HEADERS", "key_of"]

HEADERS = ("idempotency-key", "x-async-request-id")
"""Either of them names a request."""

_TITLE = "The request cannot be understood"


def key_of(asked: Asked, shared: bool) -> str | None:
    """The key of a request; None: it has none.

    ``shared``: keys of callers who are not known are one and the same for all of them.

    :raises Problem: 400, it is not clear which key it is, or whose
    """
    if asked.headers.keys().isdisjoint(HEADERS):  # as most
        return None
    keys = {(name, value.strip()) for name in HEADERS for value in asked.all(name)}
    if len({value for _, value in keys}) > 1:
        raise Problem(400, "malformed", _TITLE, f"a request has one key: {', '.join(HEADERS)} say different ones")
    name, key = keys.pop()
    if asked.identity is None and not shared:
        text = (
            f"{name}: keys belong to callers, and nobody knows who is asking: sign in, or leave the key out"
            " (for who runs this service: JobRouter(identity=...) says who asks, shared_keys=True lets all share keys)"
        )
        raise Problem(400, "key-without-caller", "Nobody knows whose key this is", text, faults=[Fault(name, text)])
    try:
        return checked_key(key, name)
    except ConfigError as error:
        raise Problem(400, "malformed", _TITLE, str(error), faults=[Fault(name, str(error))]) from None
