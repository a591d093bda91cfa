"""The short way of a lone job: stored on the thread of a caller who has no event loop."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from headrace.core.job import Job
from headrace.engine.answers import Inserted

__all__ = ["Direct"]


class Direct(Protocol):
    """Writes on the thread that calls, and blocks it; for engines whose driver does so anyway.

    It may be called from any thread while the session is open, and never on one that runs an event loop. Whatever it
    does not do at once, the ordinary verb does: a caller who gets None, or an error, goes on with ``Jobs.insert`` on
    the session's loop.
    """

    def insert(self, job: Job, now: datetime) -> Inserted | None:
        """Store one new job, durable when this returns; None: nothing was written, it takes the ordinary way.

        An engine may always say None. It says so while another write of this session is under way or waits, so that
        those who come meanwhile form the next write of their lane, and no lane waits for lone jobs one by one. It says
        so for a job that is not as ``submit`` makes it, that has relations, or that needs a look at what is stored: one
        whose id or key is there already. A job that is stored is stored as by ``Jobs.insert``, with the next order
        number; its hint is the caller's to send.

        Errors are those of every verb. After ``Unavailable(outcome="unknown")`` the ordinary way finds out.
        """
        ...
