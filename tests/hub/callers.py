"""Callers of a hub in tests: keys with a customer, without the keys."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import HTTPConnection

from headrace.core.auth.api_keys import SCOPES
from headrace.hub.auth.authenticator import Authenticator
from headrace.hub.auth.caller import LOCAL, Caller
from headrace.hub.server.operation import Operation
from tests.hub.serving import Served

__all__ = ["AS", "ann", "bob", "let_in"]

AS = "X-Test-Caller"
"""The header that names the caller."""

_ALL = frozenset(SCOPES) - {"admin", "engine"}
ann = Caller(name="ann-key", scopes=_ALL, customer="ann")
bob = Caller(name="bob-key", scopes=_ALL, customer="bob")


class _ByName(Authenticator):
    def __init__(self, served: Served, callers: Mapping[str, Caller]) -> None:
        super().__init__(served.app, served.hub.options)
        self._callers = callers

    def caller(self, connection: HTTPConnection, operation: Operation) -> Caller:
        return self._callers.get(connection.headers.get(AS, ""), LOCAL)

    def knows(self, caller: Caller) -> bool:
        return True


def let_in(served: Served, *callers: Caller) -> None:
    """Take requests for those of the caller that they name, else for one without a customer."""
    served.hub.authenticator = _ByName(served, {one.name: one for one in callers})
