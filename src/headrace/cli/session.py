"""Between a command line and an App: choose the App, open it, do the work, close it."""

from __future__ import annotations

import asyncio
import getpass
import logging
import socket
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.app_finder import find_app, make_importable
from headrace.cli.exit_codes import UNREACHABLE, noted
from headrace.cli.options import State, common
from headrace.cli.output.console import warn
from headrace.core import defaults
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["USER", "StoreUnusable", "choose", "me", "missing", "on_app", "opened", "whose_url", "with_app"]

T = TypeVar("T")

USER = "cli"
"""The name in the audit, where this machine has no name for the user."""


def choose(state: State) -> tuple[App, str | None]:
    """Return the App to use and the URL that overrides its own.

    ``--app`` wins; ``--url`` alone imports no code; without flags the settings name an app, a URL, or neither.
    """
    from headrace.app import App
    from headrace.config import Settings

    make_importable()
    if state.url is not None and "://" not in state.url:
        raise ConfigError(f"--url must be a URL such as sqlite:///{state.url or 'jobs.db'}, not {state.url!r}")
    if state.app is not None:
        return find_app(state.app), state.url
    if state.url is not None:
        return App(), state.url
    named = Settings.load().app
    return (find_app(named), None) if named else (App(), None)


def with_app(state: State, work: Callable[[App], Coroutine[Any, Any, T]], *, creates: bool = False) -> T:
    """Open the chosen App, await the work with it, close it; return the result of the work.

    A command that only looks makes no store (``creates``): a mistyped name must not look like an empty one.
    """
    app, url = choose(state)
    with ExitStack() as stack:
        stack.enter_context(plain_warnings())
        if url:
            stack.enter_context(app.override(url=url))
        return asyncio.run(_inside(app, work, creates))


def on_app(*, creates: bool = False) -> Callable[[Callable[..., Coroutine[Any, Any, Any]]], Callable[..., int | None]]:
    """Return a decorator that makes a coroutine function a command's body: it takes the open App and the State first.

    A group does its own work only when no sub-command is called. ``creates``: as of ``with_app``.
    """

    def decorate(fn: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., int | None]:
        @wraps(fn)
        def body(state: State, *args: Any, **kwargs: Any) -> int | None:
            if click.get_current_context().invoked_subcommand is not None:
                return None
            code: int | None = with_app(state, lambda app: fn(app, state, *args, **kwargs), creates=creates)
            return code

        return common(body)

    return decorate


def me() -> str:
    """Return the user of this machine, for the audit of jobs and settings."""
    try:
        return f"{getpass.getuser()} on {socket.gethostname()}"[: defaults.MAX_NOTE_CHARACTERS]
    except (OSError, KeyError, ImportError):  # this machine has no name for the user
        return USER


class _Logged(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.name in ("headrace.requirements", "headrace.webhooks") and record.levelno >= logging.WARNING:
            warn(record.getMessage())


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings as one line each; of the log only that no worker meets a requirement, or that a webhook
    leads where nothing is sent."""
    logger, logged = logging.getLogger("headrace"), _Logged()

    def show(message: Warning | str, *where: object, **more: object) -> None:
        warn(str(message))

    from headrace.client.api.tasks import UnregisteredTask

    with warnings.catch_warnings():
        warnings.filterwarnings("always", category=UnregisteredTask)
        warnings.showwarning = show
        logger.addHandler(logged)
        try:
            yield
        finally:
            logger.removeHandler(logged)


class StoreUnusable(click.ClickException):
    """The store that a good URL names cannot be opened."""

    exit_code = UNREACHABLE


def missing(app: App) -> str:
    """Return the error that there is no store, with the origin of its URL."""
    from headrace.engines.connect import redact

    where, whose = redact(app.settings.url), whose_url(app)
    known = "" if whose.startswith("from --url") else f" ({whose})"
    return f"there is no store at {where} yet{known}: the first submit or worker makes it"


def whose_url(app: App) -> str:
    """Return where the URL comes from, and what it overrides."""
    from headrace.config import OVERRIDE

    won, others = app._url_source()
    won = "--url" if won == OVERRIDE else won
    return f"from {won}, which wins over {' and '.join(others)}" if others else f"from {won}"


@asynccontextmanager
async def opened(app: App, *, creates: bool = True) -> AsyncIterator[App]:
    """Open the App. A URL that means nothing is bad usage; a store that cannot be opened has its own exit code."""
    app._new_engine()
    try:
        if not creates and not await app.store.exists():
            raise StoreUnusable(missing(app))
        await app.__aenter__()
    except ConfigError as error:
        raise StoreUnusable(f"{error}{noted(error)}") from error
    try:
        yield app
    finally:
        await app.__aexit__(None, None, None)


async def _inside(app: App, work: Callable[[App], Coroutine[Any, Any, T]], creates: bool) -> T:
    async with opened(app, creates=creates):
        return await work(app)
