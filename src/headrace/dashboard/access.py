"""Viewers of the dashboard, and what they may do there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Literal, Protocol

from starlette.requests import Request
from starlette.responses import Response

from headrace.client.api.filters import Filters
from headrace.core.auth.api_keys import Permissions, Scope
from headrace.core.job import Job
from headrace.core.status import Verb
from headrace.errors import ConfigError

__all__ = ["Access", "Allowed", "Gate", "HostGate", "Viewer"]

Allowed = Literal["read", "act", "no"]
"""See everything; see and change everything; nothing."""

READ: frozenset[Scope] = frozenset({"read"})
ACT: frozenset[Scope] = frozenset({"read", "submit", "act", "admin"})


class Viewer(Permissions, frozen=True, kw_only=True):
    """A person who uses the dashboard: their permissions, and the customer that they are limited to."""

    name: str
    """``by`` of every action."""
    key: str | None = None
    """The key of their session, if it depends on one; shown nowhere."""
    errors: Literal["shown", "hidden"] = "shown"
    """``hidden``: they see references instead of the texts of errors."""
    session: str | None = None
    """Known only to their browser and this process, if there is a session; shown nowhere."""

    @property
    def acts(self) -> bool:
        """Whether they may change anything."""
        return bool(self.scopes & {"submit", "act", "admin"})


Access = Callable[[Request], Allowed | Viewer | Awaitable[Allowed | Viewer]]
"""Returns what the sender of a request may do. ``Viewer`` states more: a name for the audit, scopes, a customer."""


class Gate(Protocol):
    """Admits viewers."""

    async def enter(self, request: Request) -> Viewer | Response:
        """Return the viewer, or the response that refuses them."""
        ...

    def leaves(self, viewer: Viewer) -> bool:
        """Return whether this viewer can log out here."""
        ...

    async def admit(self, viewer: Viewer, job: Job) -> None:
        """Check that one more job like this may become live; :raises ActionRefused: there are too many"""
        ...

    async def admit_all(self, viewer: Viewer, verb: Verb, filters: Filters, count: int) -> None:
        """Check that all matching jobs, so many, may become live; :raises ActionRefused: there are too many"""
        ...


class HostGate:
    """Lets the application that the dashboard is mounted in decide."""

    def __init__(self, access: Access) -> None:
        if not callable(access):
            raise ConfigError(
                "dashboard: access must be a function of the request that answers 'read', 'act' or 'no',"
                f" not {access!r}; it has no default, because everybody who reaches the page sees all jobs"
            )
        self._access = access

    async def enter(self, request: Request) -> Viewer | Response:
        """Return the viewer, as the application decides."""
        answer: Any = self._access(request)
        if isawaitable(answer):
            answer = await answer
        if isinstance(answer, Viewer) and "read" in answer.scopes:
            return answer
        if answer == "read" or answer == "act":
            return Viewer(name=f"dashboard:{answer}", scopes=ACT if answer == "act" else READ)
        if answer == "no" or isinstance(answer, Viewer):
            return Response("You may not see this dashboard.\n", 403, media_type="text/plain")
        raise ConfigError(f"dashboard: access answered {answer!r}, and not 'read', 'act', 'no' or a Viewer")

    def leaves(self, viewer: Viewer) -> bool:
        """Never: the application ends its own sessions."""
        return False

    async def admit(self, viewer: Viewer, job: Job) -> None:
        """Admit any number."""

    async def admit_all(self, viewer: Viewer, verb: Verb, filters: Filters, count: int) -> None:
        """Admit any number."""
