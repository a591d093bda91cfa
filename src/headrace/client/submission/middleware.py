"""What an App has around its submits: middleware, called with the drafts before they are stored."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.client.draft import Draft
from headrace.client.handle import JobHandle
from headrace.client.submission.transaction import submit_here
from headrace.errors import ConfigError, HeadraceError, shown
from headrace.worker.execution.hooks import check_middleware

if TYPE_CHECKING:
    from headrace.app import App

__all__ = [
    "SubmitMiddleware",
    "SubmitNext",
    "check_drafts",
    "check_submit_middleware",
    "submit_here_through",
    "through",
]

R = TypeVar("R")

SubmitNext = Callable[[Sequence[Draft[Any]]], Awaitable[list[JobHandle[Any]]]]
"""Goes on with the submit: the next middleware, in the end the store; gives a handle for each draft."""

SubmitMiddleware = Callable[[Sequence[Draft[Any]], SubmitNext], Awaitable[list[JobHandle[Any]]]]
"""Is called around a submit, with its drafts; returns a handle for each of them."""


def check_submit_middleware(fn: Any) -> SubmitMiddleware:
    """Refuse what could not be called around a submit; :raises ConfigError: saying what is needed"""
    good: SubmitMiddleware = check_middleware(
        fn, "a submit middleware is `async def name(drafts, call_next) -> list[JobHandle]`"
    )
    return good


def check_drafts(app: App, items: Sequence[object], what: str = "submit_many") -> None:
    """Refuse what is no draft of this App; :raises TypeError, ConfigError: naming its index"""
    for index, item in enumerate(items):
        if not isinstance(item, Draft):
            raise TypeError(f"{what}: item {index} must be a draft, as of task.draft(...), not {type(item).__name__}")
        if item._app is not app:
            raise ConfigError(f"{what}: item {index} belongs to a task of another App")


async def through(app: App, drafts: Sequence[Draft[Any]], store: SubmitNext) -> list[JobHandle[Any]]:
    """Store drafts inside the middleware of the App, the first registered outermost; a handle for each."""
    check_drafts(app, drafts)
    call = store
    for middleware in reversed(app._submit_middlewares):
        call = partial(_call, app, middleware, call)
    return await call(drafts)


async def _call(
    app: App, middleware: SubmitMiddleware, then: SubmitNext, drafts: Sequence[Draft[Any]]
) -> list[JobHandle[Any]]:
    name, stored = getattr(middleware, "__qualname__", repr(middleware)), list[JobHandle[Any]]()

    async def call_next(passed: Sequence[Draft[Any]]) -> list[JobHandle[Any]]:
        passed = list(passed)
        check_drafts(app, passed, f"submit middleware {name}")
        handles = await then(passed)
        stored.extend(handles)
        return handles

    handles = await middleware(drafts, call_next)
    if not isinstance(handles, list) or not all(isinstance(one, JobHandle) for one in handles):
        fault = f"it must return what call_next gives, not {shown(handles)}"
    elif len(handles) != len(drafts):
        fault = f"it must return one handle for each draft that it was given, not {len(handles)} for {len(drafts)}"
    else:
        return handles
    there = f" (stored all the same: {', '.join(str(one.id) for one in stored[:3])}{' …' * (len(stored) > 3)})"
    raise HeadraceError(f"submit middleware {name}: {fault}{there if stored else ''}")


def submit_here_through(app: App, draft: Draft[R], connection: Any) -> JobHandle[R]:
    """The same on a thread without an event loop, which has the connection: middleware runs on the background loop, and
    what it lets pass is written here."""
    writes: SimpleQueue[tuple[Sequence[Draft[Any]], Future[list[JobHandle[Any]]]] | None] = SimpleQueue()

    async def store(drafts: Sequence[Draft[Any]]) -> list[JobHandle[Any]]:
        written: Future[list[JobHandle[Any]]] = Future()
        writes.put((drafts, written))
        return await asyncio.wrap_future(written)

    def run() -> None:
        try:
            found.set_result(app.wait(through(app, [draft], store))[0])
        except BaseException as error:
            found.set_exception(error)
        finally:
            writes.put(None)

    found: Future[JobHandle[R]] = Future()
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name="headrace-submit", daemon=True).start()
    while (write := writes.get()) is not None:
        drafts, written = write
        try:
            written.set_result(submit_here(app, drafts, connection))
        except Exception as error:
            written.set_exception(error)
        except BaseException:  # an interrupt of this thread, which is for no other
            written.cancel()
            raise
    return found.result()
