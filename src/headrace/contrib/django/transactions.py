"""Jobs in Django's transactions: a job exists once the transaction that it belongs to is committed, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections, transaction

from headrace.client.draft import Draft
from headrace.contrib.django.project import database
from headrace.core.job import Job

if TYPE_CHECKING:
    from uuid import UUID

    from headrace.app import App

__all__ = ["submit", "submit_then", "waited"]

T = TypeVar("T")


def submit(draft: Draft[Any], *, using: str | None = None) -> UUID:
    """Store a job as part of the open transaction, or at once if there is none; return its id.

    Where the jobs are in the same database (``HEADRACE = {"DATABASE": ...}``), it is stored with the transaction, or
    not at all. Elsewhere it is stored right after the commit: a process that dies between the two loses it. ``using``:
    the alias of the transaction's database.
    """
    submit_then(draft, lambda job: None, using=using)
    return draft.id


def submit_then(draft: Draft[Any], then: Callable[[Job], object], *, using: str | None = None) -> Job | None:
    """Like ``submit``, and call ``then`` with the job once it is stored; return None if that is after the commit."""
    own = database()
    alias = using or own or DEFAULT_DB_ALIAS
    connection = connections[alias]

    def store(draft: Draft[Any]) -> Job:
        handle = draft.submit_sync() if "connection" in draft.options else waited(draft._app, draft.submit())
        assert handle.last is not None  # what was just stored is known
        then(handle.last)
        return handle.last

    if not connection.in_atomic_block:
        return store(draft)
    if alias == own:
        return store(draft.with_options(connection=connection))
    transaction.on_commit(lambda: store(draft), using=alias)
    return None


def waited(app: App, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work; the caller waits, also on an event loop, as in Django's blocking calls."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return app.wait(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(app.wait, work).result()
