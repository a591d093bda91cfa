"""The session: opening and closing a store, and its roles."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from headrace.core.defaults import Rules
from headrace.engine.bus import Bus
from headrace.engine.documents import Documents
from headrace.engine.entries import Entries
from headrace.engine.families import Families
from headrace.engine.jobs import Direct, Jobs
from headrace.engine.records import Records
from headrace.engine.rollups import Rollups
from headrace.engine.transactions import Transactions
from headrace.engine.values import Check
from headrace.engine.workers import Workers

__all__ = ["Engine"]


class Engine(Protocol):
    """A session on a store, used from one event loop. Constructing one touches nothing; ``open`` connects.

    The roles exist from the construction on, and stay the same objects over ``close`` and ``open``.
    """

    name: str
    """The name of the engine in messages: ``memory``, ``sqlite``, ``postgresql``."""
    rules: Rules

    @property
    def jobs(self) -> Jobs:
        """The verbs that move jobs."""

    @property
    def direct(self) -> Direct | None:
        """Inserts on the thread of the caller; None where the engine cannot."""

    @property
    def records(self) -> Records:
        """Queries for jobs."""

    @property
    def entries(self) -> Entries:
        """What runs add to their jobs."""

    @property
    def families(self) -> Families:
        """Notes for other jobs, and batches."""

    @property
    def rollups(self) -> Rollups:
        """What workers finished, added up."""

    @property
    def workers(self) -> Workers:
        """Which workers are alive."""

    @property
    def documents(self) -> Documents:
        """Settings, profiles and leases."""

    @property
    def transactions(self) -> Transactions | None:
        """Writes within a transaction of the user; None where the store has none that a user could join."""

    @property
    def bus(self) -> Bus:
        """Hints to other sessions; only speed depends on them."""

    async def open(self) -> None:
        """Connect, and create the schema in an empty store.

        :raises SchemaTooNew: a newer version wrote the store.
        :raises SchemaTooOld: the store must be migrated first, by command, or was made before the first release.
        :raises Unavailable: the store cannot be reached.
        """

    async def close(self) -> None:
        """Finish what is under way and disconnect; a closed session may be opened again."""

    async def exists(self) -> bool:
        """Return whether there is a store; if not, opening makes one. This makes nothing, and needs no open session."""

    async def migrate(self, *, plan: bool = False) -> list[str]:
        """Bring the schema up to date, or (``plan``) only list what would be done; return the migrations' names."""

    async def time(self) -> datetime | None:
        """Return the store's own time, as of this call: aware, in UTC. None: it has none but this machine's.

        Sessions derive from it the ``now`` of all other verbs. It is rarely called, and writes nothing.
        """

    async def check(self, now: datetime) -> list[Check]:
        """Return the findings of a check of the store's own health: reachable, settings, versions, integrity, clock.

        Only here ``now`` is the time of this machine's clock.
        """

    def another_session(self) -> Engine:
        """Make another session on the same store, for the event loop of another thread; its user opens and closes
        it."""
