"""Who looks at the dashboard, and what they may do there."""

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
"""See everything; act on it, too; nothing at all."""

READ: frozenset[Scope] = frozenset({"read"})
ACT: frozenset[Scope] = frozenset({"read", "submit", "act", "admin"})


class Viewer(Permissions, frozen=True, kw_only=True):
    """Somebody who may look: what they may do, and whose jobs they see."""

    name: str
    """``by`` of every act."""
    key: str | None = None
    """What their session hangs on, if it is a key; shown nowhere."""
    errors: Literal["shown", "hidden"] = "shown"
    """``hidden``: they see references of errors, and not their texts."""
    session: str | None = None
    """What only their browser and this process know, if there is such a thing; shown nowhere."""

    @property
    def acts(self) -> bool:
        """Whether they may do anything but look."""
        return bool(self.scopes & {"submit", "act", "admin"})


Access = Callable[[Request], Allowed | Viewer | Awaitable[Allowed | Viewer]]
"""Says of a request what its sender may do. ``Viewer`` says more: a name for the audit, single scopes, a customer."""


class Gate(Protocol):
    """Lets viewers in."""

    async def enter(self, request: Request) -> Viewer | Response:
        """Who asks; or how they are answered, if they may not."""
        ...

    def leaves(self, viewer: Viewer) -> bool:
        """Whether this viewer can log out here."""
        ...

    async def admit(self, viewer: Viewer, job: Job) -> None:
        """Let pass that one more job like this becomes live; :raises Refused: there are too many"""
        ...

    async def admit_all(self, viewer: Viewer, verb: Verb, filters: Filters, count: int) -> None:
        """Let pass that all that match become live, so many; :raises Refused: there are too many"""
        ...


class HostGate:
    """Asks the application that the dashboard is mounted in."""

    def __init__(self, access: Access) -> None:
        if not callable(access):
            raise ConfigError(
                "dashboard: access must be a function of the request that answers 'read', 'act' or 'no',"
                f" not {access!r}; it has no default, because everybody who reaches the page sees all jobs"
            )
        self._access = access

    async def enter(self, request: Request) -> Viewer | Response:
        """Who asks, as the application says."""
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
        """Never: whoever let them in lets them out."""
        return False

    async def admit(self, viewer: Viewer, job: Job) -> None:
        """Any number."""

    async def admit_all(self, viewer: Viewer, verb: Verb, filters: Filters, count: int) -> None:
        """Any number."""
