"""The door of the hub: whose request it is, and whether it may come in."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from headrace.hub.caller import LOCAL, Caller
from headrace.hub.operation import Operation

__all__ = ["Door"]


class Door:
    """Lets callers in, or says why not."""

    def caller(self, connection: HTTPConnection, operation: Operation) -> Caller:
        """Who asks for this operation.

        :raises Problem: 401, 403 or 429
        """
        return LOCAL
