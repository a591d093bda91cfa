"""The jobs that a worker behind a hub may be given: by its own capabilities, and by the bounds of its key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.core.lifecycle.suspects import QUARANTINE
from headrace.core.matching.capabilities import Capabilities
from headrace.core.matching.customers import Customers
from headrace.core.matching.match import Profile, by_service, meets
from headrace.core.validation import checked_name
from headrace.http.problems import Fault, Problem
from headrace.hub.auth.caller import Caller
from headrace.hub.auth.customers import OURS

__all__ = ["Wants", "wants_of"]


class Wants(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs a worker may be given. Workers with equal ones share a waiting list."""

    tasks: frozenset[str] | None
    """None: it names none, and is given only jobs that require a service."""
    queues: tuple[str, ...] | None
    offers: dict[str, Any]
    customers: Customers | None
    bound: frozenset[str] | None = None
    """The tasks that its key is bound to."""

    @property
    def key(self) -> bytes:
        """The same for workers that want the same."""
        return msgspec.json.encode(self, order="sorted")

    def serves(self, profile: Profile) -> bool:
        """Return whether it may be given jobs of this profile, those in quarantine included."""
        task, requires = profile.task, profile.requires
        if task.startswith(OURS) or (self.bound is not None and task not in self.bound):
            return False
        if not by_service(task, requires) if self.tasks is None else task not in self.tasks:
            return False
        return meets(requires, {**self.offers, **QUARANTINE})


def wants_of(caller: Caller, can: Capabilities, tasks: Iterable[str] | None, queues: Iterable[str] | None) -> Wants:
    """Return what a worker with this key wants.

    :raises Problem: 403, its key is bound to other tasks, queues or customers, or they are headrace's own
    :raises ConfigError: no task or queue can have such a name
    """
    named = {"tasks": None if tasks is None else frozenset(tasks), "queues": None if queues is None else set(queues)}
    for field, names in named.items():
        bound: frozenset[str] | None = getattr(caller, field)
        for name in sorted(names or ()):
            checked_name(name, f"each of {field}")
            if name.startswith(OURS):
                raise _forbidden(field, f"{field} named {OURS}… are headrace's own")
            if bound is not None and name not in bound:
                raise _forbidden(field, f"this key may use the {field} {', '.join(sorted(bound))} alone, not {name!r}")
    chosen = named["queues"] if named["queues"] is not None else caller.queues
    customers = can.customers
    if caller.customer is not None:
        customers = _within(caller.customer, customers)
    return Wants(
        tasks=None if named["tasks"] is None else frozenset(named["tasks"]),
        queues=None if chosen is None else tuple(sorted(chosen)),
        offers=can.offers,
        customers=customers,
        bound=caller.tasks,
    )


def _within(own: str, chosen: Customers | None) -> Customers:
    """Return the customer of the key, whatever the worker chooses among others."""
    if chosen is not None and not chosen.admits(own):
        raise _forbidden("capabilities", f"this key is for the customer {own!r} alone, which the worker does not take")
    return Customers(allow=frozenset({own}), strict=chosen is not None and chosen.strict)


def _forbidden(field: str, message: str) -> Problem:
    return Problem(403, "forbidden", "This is not for this key", message, faults=[Fault(field, message)])
