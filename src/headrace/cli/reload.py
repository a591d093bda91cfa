"""``worker --reload``: what changed on disk, told to whoever renews the workers."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

from headrace.cli.output import say
from headrace.errors import MissingExtra

__all__ = ["changes", "renew_on_change"]


def changes() -> AsyncIterator[set[tuple[Any, str]]]:
    """Batches of changed Python files under the current directory.

    :raises MissingExtra: watchfiles is not installed
    """
    try:
        watchfiles: Any = importlib.import_module("watchfiles")
    except ImportError:
        raise MissingExtra("--reload", "watchfiles", "reload") from None
    found: AsyncIterator[set[tuple[Any, str]]] = watchfiles.awatch(
        os.getcwd(), watch_filter=watchfiles.PythonFilter(), stop_event=asyncio.Event()
    )
    return found


async def renew_on_change(
    batches: AsyncIterator[set[tuple[Any, str]]], renew: Callable[[], None], tell: Callable[[str], None] = say
) -> None:
    """Renew the workers whenever files changed, for ever."""
    here = os.path.join(os.getcwd(), "")
    async for batch in batches:
        names = sorted({path.removeprefix(here) for _, path in batch})
        tell(f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''} changed: renewing workers")
        renew()
