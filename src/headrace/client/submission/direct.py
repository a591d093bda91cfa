"""Submitting one job without an event loop: on the caller's own thread where the store can do that."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, TypeVar

from headrace.client import background
from headrace.client.draft import Draft
from headrace.client.handle import JobHandle, handle_of
from headrace.client.submission.middleware import submit_here_through
from headrace.client.submission.transaction import submit_here
from headrace.core.lifecycle.decision import expires_soon
from headrace.engine import Hint, Inserted, Topic
from headrace.errors import EngineError, NotOpen, Unavailable
from headrace.runtime.slot import current

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["submit"]

R = TypeVar("R")


def submit(draft: Draft[R]) -> JobHandle[R]:
    """Store one job: here and now if it can be, else on the background loop, with whatever else is submitted there;
    :raises SyncInAsync: this thread has a running event loop"""
    app, connection, unknown = draft._app, draft.options.get("connection"), False
    if connection is not None:
        if app._submit_middlewares:
            return submit_here_through(app, draft, connection)
        return submit_here(app, [draft], connection)[0]
    try:
        inserted = _insert(app, draft)
    except (EngineError, NotOpen) as error:
        # The ordinary way repeats it, waits, or says what is wrong. To insert a job twice by its id is harmless.
        inserted, unknown = None, isinstance(error, Unavailable) and error.outcome == "unknown"
    if inserted is not None:
        return handle_of(draft, inserted)
    try:
        return app.wait(draft.submit())  # which finds the session of the loop it runs on
    except Unavailable as error:
        if unknown:
            error.outcome = "unknown"
        raise


def _insert(app: App, draft: Draft[R]) -> Inserted | None:
    """Store a job that has no relations, and of which nothing but its commit must be waited for; None: not this way."""
    session = None if app._waiter is not None or app._submit_middlewares else background.session_of(app)
    direct = None if session is None else session.engine.direct
    if session is None or direct is None or draft.options.get("requires") or current.get() is not None:
        return None
    if "webhook" in draft.options or not session.writer.inserts.webhooks.silent:
        return None
    now = session.writer.now_unless_old()
    if now is None:
        return None
    job, thread = draft._job(now), get_ident()
    if thread in background.writing:
        return None  # which says why
    try:
        background.writing.add(thread)
        inserted = direct.insert(job, now)
    finally:
        background.writing.discard(thread)
    if inserted is not None:
        session.engine.bus.send(Hint(Topic.READY, (inserted.job.spec.queue,)))
        if job.act_by is not None and expires_soon(job, session.engine.rules):
            session.engine.bus.send(Hint(Topic.DEADLINE))
    return inserted
