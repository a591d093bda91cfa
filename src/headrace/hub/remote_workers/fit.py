"""Better fit among workers that wait at this hub: which worker leaves which jobs to others, for a moment.

When there may be a job, several claims go to the store at the same time. Each requests first the jobs that no other of
them would waste less on; once those others have their reply, or after ``MAX_HOLD_SECONDS``, all that it may take. So a
job goes to the worker that fits best, the order of the store is never bent, and no claim waits for long.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from headrace.core.matching.fit import MAX_HOLD_SECONDS, Loaded, Waste, held_back, waste
from headrace.engine import Profiles
from headrace.hub.remote_workers.capabilities import Wants
from headrace.runtime.host import Host

__all__ = ["Fitting", "Kind"]

Kind = tuple[bytes, Loaded | None]
"""What makes claims equal here: their waiting list, and what their worker has loaded."""

_MAX_COMPARED_KINDS = 32
"""Maximum of kinds that are compared; among more no claim holds back, since comparing would take too long."""


class Fitting:
    """The claims with a first request at the store, and what each of their kinds wastes on which jobs."""

    def __init__(self, host: Callable[[], Host]) -> None:
        self._host = host
        self._first = Counter[Kind]()
        self._wants: dict[Kind, Wants] = {}
        self._answered = asyncio.Event()
        self._known: Profiles | None = None
        self._wastes: dict[Kind, dict[int, Waste]] = {}

    def enter(self, kind: Kind, wants: Wants) -> None:
        """Note that a first request for a claim of this kind begins."""
        self._first[kind] += 1
        self._wants[kind] = wants

    def leave(self, kind: Kind) -> None:
        """Note that it is over: the store has replied about all that the claim does not leave to others."""
        self._first[kind] -= 1
        if not self._first[kind]:
            del self._first[kind], self._wants[kind]
        self._answered.set()

    def kept(self, kind: Kind, wants: Wants, known: Profiles) -> frozenset[int]:
        """Return the profiles that a claim of this kind leaves to others for now."""
        others = [one for one in self._first if one != kind]
        if not others or len(others) >= _MAX_COMPARED_KINDS:
            return frozenset()
        if self._known is None or known.rev != self._known.rev or len(self._wastes) > 8 * _MAX_COMPARED_KINDS:
            self._known, self._wastes = known, {}
        return self._held_back(self._wasted(kind, wants), kind, 0.0)

    async def turn(self, kind: Kind, wants: Wants, kept: Collection[int]) -> None:
        """Wait until the claims that these profiles are left to have their reply, or ``MAX_HOLD_SECONDS`` are over."""
        host = self._host()
        clock = host.clock
        since, mine = clock.monotonic(), self._wasted(kind, wants)
        mine = {one: own for one, own in mine.items() if one in kept}
        while self._held_back(mine, kind, waited := clock.monotonic() - since):
            self._answered.clear()
            await host.wait(self._answered, MAX_HOLD_SECONDS - waited)

    def _held_back(self, mine: Mapping[int, Waste], kind: Kind, waited: float) -> frozenset[int]:
        others = [self._wasted(one, wants) for one, wants in self._wants.items() if one != kind]
        return held_back(mine, others, waited)

    def _wasted(self, kind: Kind, wants: Wants) -> dict[int, Waste]:
        """Return what claims of this kind waste on each profile that they may be given."""
        found = self._wastes.get(kind)
        if found is None:
            known = () if self._known is None else self._known.profiles
            found = {one.id: waste(one.requires, wants.offers, kind[1]) for one in known if wants.serves(one)}
            self._wastes[kind] = found
        return found
