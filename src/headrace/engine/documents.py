"""Documents: settings under compare-and-set, the profiles of jobs, and leases of duties."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID

from headrace.core.attempt import Event
from headrace.core.audit import Audited
from headrace.engine.values import Profiles, Setting

__all__ = ["Documents"]


class Documents(Protocol):
    """The small and slow part of a store."""

    async def profiles(self) -> Profiles:
        """Return every profile that a live job needs, perhaps more, and a rev that grows whenever one is added.

        Claims and beats return the same rev as ``profiles_rev``: a worker that sees it grow reads again which profiles
        it can run. A profile that was forgotten and is needed again may have another number.
        """

    async def settings(self, prefix: str = "") -> list[Setting]:
        """Return settings with keys that begin with the prefix, by key."""

    async def put_setting(self, key: str, value: str | None, expect: int, act: Event | None = None) -> Setting | None:
        """Write (None: delete) a setting if it is still at rev ``expect`` (0: not there).

        Returns the setting as written (deleted: as it was), or None when another was faster. Revs are taken from one
        counter for all settings, so none comes again for a key that was deleted; claims and beats return that counter
        as ``settings_rev``. The documents ``queue:NAME``, ``limit:TASK`` and ``rate:NAME`` govern claims, as
        ``core.limits.settings`` reads them; one that it cannot read is stored all the same.

        ``act``: the action with its actor, stored with the key in the same commit, even if the value does not change;
        the newest ``core.defaults.MAX_AUDIT_ENTRIES`` are kept.
        """

    async def audit(self, limit: int) -> list[Audited]:
        """Return the newest actions on settings, the newest first."""

    async def lease(
        self, name: str, holder: UUID, seconds: float, now: datetime, longest: float | None = None
    ) -> int | None:
        """Take or renew a duty by ``core.lifecycle.duty.taken``; return its token, or None while another holds it."""

    async def unlease(self, name: str, holder: UUID) -> None:
        """Give a duty back by ``core.lifecycle.duty.given_back``."""

    async def holder(self, name: str, now: datetime) -> UUID | None:
        """Return the holder of a duty now; None: it is free."""
