"""The session: opening and closing a store, and the roles it is made of."""

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

    The roles are there from the construction on, and stay the same objects over ``close`` and ``open``.
    """

    name: str
    """What the engine is called in messages: ``memory``, ``sqlite``, ``postgresql``."""
    rules: Rules

    @property
    def jobs(self) -> Jobs:
        """The verbs that move jobs."""
        ...

    @property
    def direct(self) -> Direct | None:
        """Inserts on the thread of the caller; None where the engine has no such way."""
        ...

    @property
    def records(self) -> Records:
        """Questions about jobs."""
        ...

    @property
    def entries(self) -> Entries:
        """What runs add to their jobs."""
        ...

    @property
    def families(self) -> Families:
        """Notes for other jobs, and batches."""
        ...

    @property
    def rollups(self) -> Rollups:
        """What workers finished, added up."""
        ...

    @property
    def workers(self) -> Workers:
        """Who is alive."""
        ...

    @property
    def documents(self) -> Documents:
        """Settings, profiles and leases."""
        ...

    @property
    def transactions(self) -> Transactions | None:
        """Writes within a transaction of the user's; None where the store has none that a user could join."""
        ...

    @property
    def bus(self) -> Bus:
        """Hints to other sessions; nothing but speed depends on them."""
        ...

    async def open(self) -> None:
        """Connect, and create the schema in an empty store.

        :raises SchemaTooNew: a newer version wrote the store.
        :raises SchemaTooOld: the store must be migrated first, by command, or was made before the first release.
        :raises Unavailable: the store cannot be reached.
        """
        ...

    async def close(self) -> None:
        """Finish what is under way and disconnect; a closed session may be opened again."""
        ...

    async def exists(self) -> bool:
        """Whether there is a store to open; if not, opening makes one. It makes nothing, and needs no open session."""
        ...

    async def migrate(self, *, plan: bool = False) -> list[str]:
        """Bring the schema up to date, or (``plan``) only say what would be done; the names of the migrations."""
        ...

    async def time(self) -> datetime | None:
        """The store's own time, as of this call: aware, in UTC. None: it has none but this machine's.

        What sessions pass as ``now`` to all other verbs is made of it. It is asked for rarely, and nothing is written.
        """
        ...

    async def check(self, now: datetime) -> list[Check]:
        """The findings of a look at the store's own health: reachable, settings, versions, integrity, clock.

        Here alone ``now`` is what this machine's clock says.
        """
        ...

    def another_session(self) -> Engine:
        """Another session on the same store, for the event loop of another thread; its user opens and closes it."""
        ...
