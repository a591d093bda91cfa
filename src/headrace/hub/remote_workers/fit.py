"""Better fit among workers that wait at this hub: which worker leaves which jobs to others, for a moment.

When there may be a job, several claims go to the store at the same time. Each requests first the jobs that no other of
them is to have (``core.matching.fit.Rank``); once those others have their reply, or after ``MAX_HOLD_SECONDS``, all
that it may take. So a job goes to the worker that fits best, the order of the store is never bent, and no claim waits
for long.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from headrace.core.matching.fit import MAX_HOLD_SECONDS, Loaded, Rank, Waste, held_back, ranked, waste
from headrace.engine import Profiles
from headrace.hub.remote_workers.capabilities import Wants
from headrace.runtime.host import Host

__all__ = ["Bid", "Fitting", "Kind"]

Kind = tuple[bytes, Loaded | None]
"""What makes claims waste the same: their waiting list, and what their worker has loaded."""


class Bid(NamedTuple):
    """What makes claims equal here."""

    kind: Kind
    load: float
    failed: frozenset[int]
    """The profiles of due jobs that the worker was the last to fail."""

    def gives_way_to(self, other: Bid) -> bool:
        """Return whether the other is compared at all: claims of one kind are sent in the order of their load."""
        return self.kind != other.kind or self.failed != other.failed


_MAX_COMPARED_BIDS = 32
"""Maximum of bids that are compared; among more no claim holds back, since comparing would take too long."""


class Fitting:
    """The claims with a first request at the store, and what each of their kinds wastes on which jobs."""

    def __init__(self, host: Callable[[], Host]) -> None:
        self._host = host
        self._first = Counter[Bid]()
        self._wants: dict[Bid, Wants] = {}
        self._answered = asyncio.Event()
        self._known: Profiles | None = None
        self._wastes: dict[Kind, dict[int, Waste]] = {}

    def enter(self, bid: Bid, wants: Wants) -> None:
        """Note that a first request for such a claim begins."""
        self._first[bid] += 1
        self._wants[bid] = wants

    def leave(self, bid: Bid) -> None:
        """Note that it is over: the store has replied about all that the claim does not leave to others."""
        self._first[bid] -= 1
        if not self._first[bid]:
            del self._first[bid], self._wants[bid]
        self._answered.set()

    def kept(self, bid: Bid, wants: Wants, known: Profiles) -> frozenset[int]:
        """Return the profiles that such a claim leaves to others for now."""
        others = [one for one in self._first if bid.gives_way_to(one)]
        if not others or len(others) >= _MAX_COMPARED_BIDS:
            return frozenset()
        if self._known is None or known.rev != self._known.rev or len(self._wastes) > 8 * _MAX_COMPARED_BIDS:
            self._known, self._wastes = known, {}
        return self._held_back(self._ranks(bid, wants), bid, 0.0)

    async def turn(self, bid: Bid, wants: Wants, kept: Collection[int]) -> None:
        """Wait until the claims that these profiles are left to have their reply, or ``MAX_HOLD_SECONDS`` are over."""
        host = self._host()
        clock = host.clock
        since, mine = clock.monotonic(), self._ranks(bid, wants)
        mine = {one: own for one, own in mine.items() if one in kept}
        while self._held_back(mine, bid, waited := clock.monotonic() - since):
            self._answered.clear()
            await host.wait(self._answered, MAX_HOLD_SECONDS - waited)

    def _held_back(self, mine: Mapping[int, Rank], bid: Bid, waited: float) -> frozenset[int]:
        others = [self._ranks(one, wants) for one, wants in self._wants.items() if bid.gives_way_to(one)]
        return held_back(mine, others, waited)

    def _ranks(self, bid: Bid, wants: Wants) -> dict[int, Rank]:
        """Return the ranks of such claims for each profile that they may be given."""
        found = self._wastes.get(bid.kind)
        if found is None:
            known = () if self._known is None else self._known.profiles
            found = {one.id: waste(one.requires, wants.offers, bid.kind[1]) for one in known if wants.serves(one)}
            self._wastes[bid.kind] = found
        return ranked(found, bid.failed, bid.load)
