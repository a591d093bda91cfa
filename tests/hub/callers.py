"""Callers of a hub in tests: keys with a customer, without the keys."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import HTTPConnection

from headrace.hub.caller import LOCAL, SCOPES, Caller
from headrace.hub.door import Door
from headrace.hub.operation import Operation
from tests.hub.serving import Served

__all__ = ["AS", "ann", "bob", "let_in"]

AS = "X-Test-Caller"
"""The header that names the caller."""

_ALL = frozenset(SCOPES) - {"admin", "engine"}
ann = Caller(name="ann-key", scopes=_ALL, customer="ann")
bob = Caller(name="bob-key", scopes=_ALL, customer="bob")


class _ByName(Door):
    def __init__(self, served: Served, callers: Mapping[str, Caller]) -> None:
        super().__init__(served.app, served.hub.options)
        self._callers = callers

    def caller(self, connection: HTTPConnection, operation: Operation) -> Caller:
        return self._callers.get(connection.headers.get(AS, ""), LOCAL)

    def knows(self, caller: Caller) -> bool:
        return True


def let_in(served: Served, *callers: Caller) -> None:
    """Take requests for those of the caller that they name, else for one without a customer."""
    served.hub.door = _ByName(served, {one.name: one for one in callers})
