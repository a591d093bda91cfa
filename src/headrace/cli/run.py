"""Between a command line and an App: choose the App, open it, do the work, close it."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.cli.find import find_app, make_importable
from headrace.cli.output import warn
from headrace.cli.state import State

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["USER", "choose", "with_app"]

T = TypeVar("T")

USER = "cli"
"""Who acted, in a job's audit trail."""


def choose(state: State) -> tuple[App, str | None]:
    """The App to use and the URL that overrides its own.

    ``--app`` wins; ``--url`` alone imports nobody's code; without flags the settings name an app, a URL, or neither.
    """
    from headrace.app import App
    from headrace.config import Settings

    make_importable()
    if state.app:
        return find_app(state.app), state.url
    if state.url:
        return App(state.url), None
    named = Settings.load().app
    return (find_app(named), None) if named else (App(), None)


def with_app(state: State, work: Callable[[App], Coroutine[Any, Any, T]]) -> T:
    """Open the chosen App, await the work with it, close it; the work's answer."""
    app, url = choose(state)
    with ExitStack() as stack:
        stack.enter_context(plain_warnings())
        if url:
            stack.enter_context(app.override(url=url))
        return asyncio.run(_inside(app, work))


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings as one line each; what is logged as well is not said twice."""
    logger, silence = logging.getLogger("headrace"), logging.NullHandler()

    def show(message: Warning | str, *where: object, **more: object) -> None:
        warn(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show
        logger.addHandler(silence)
        try:
            yield
        finally:
            logger.removeHandler(silence)


async def _inside(app: App, work: Callable[[App], Coroutine[Any, Any, T]]) -> T:
    async with app:
        return await work(app)
