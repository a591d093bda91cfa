"""Completion of names and ids by a shell: tasks, queues, jobs and the like, from the App and its store.

It never delays a shell for long and never writes into its line: a store that does not answer in time, or not at all,
completes nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from headrace.app import App
    from headrace.cli.options import State

__all__ = ["INSTRUCTION", "known", "leave"]

INSTRUCTION = "_HEADRACE_COMPLETE"
"""The environment variable by which a shell asks for completions."""

_MAX_SECONDS, _SECONDS = 2.0, "_HEADRACE_COMPLETE_SECONDS"
"""Seconds that a shell waits for the store, and the environment variable that says how many."""
_MAX_NAMES, _MAX_JOBS = 500, 200
_MIN_PART_CHARACTERS = 4

Names = AsyncIterator[tuple[str, str]]
"""Names or ids, each with a word about it, which zsh and fish show."""


def known(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return what completes names of this kind: task, queue, rate, schedule, job, batch, worker, webhook."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = list[tuple[str, str]]()
        search = threading.Thread(target=_search, args=(ctx.find_root().obj, kind, incomplete, found), daemon=True)
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            search.start()  # a thread, because it can be left behind: not even the import of an App keeps the shell
            search.join(float(os.environ.get(_SECONDS, _MAX_SECONDS)))
        return [CompletionItem(name, help=about) for name, about in dict(_fitting(found, incomplete)).items()]

    return complete


def _fitting(found: Iterable[tuple[str, str]], incomplete: str) -> list[tuple[str, str]]:
    """Return those that begin like this, or else, as of ids, those that end so."""
    pairs = list(found)[:_MAX_NAMES]
    first = [pair for pair in pairs if pair[0].startswith(incomplete)]
    return first or [pair for pair in pairs if pair[0].endswith(incomplete)]


def _search(state: State, kind: str, incomplete: str, found: list[tuple[str, str]]) -> None:
    import asyncio

    from headrace.cli.session import choose

    try:
        app, url = choose(state)
        with ExitStack() as stack:
            if url:
                stack.enter_context(app.override(url=url))
            asyncio.run(_collect(app, kind, incomplete, found))
    except (Exception, SystemExit):  # whatever it is, the command itself tells of it when it is run
        pass


async def _collect(app: App, kind: str, incomplete: str, found: list[tuple[str, str]]) -> None:
    from headrace.cli.session import opened

    if kind == "task":
        app._load()
        found += [(name, "") for name in app.tasks]
    async with opened(app, creates=False):
        async for pair in _KINDS[kind](app, incomplete):
            found.append(pair)


async def _tasks(app: App, part: str) -> Names:
    for one in await app.tasks.list():
        yield one.name, f"queue {one.queue}"


async def _queues(app: App, part: str) -> Names:
    for one in await app.queues.list(history=False):
        yield one.name, "paused" if one.paused else f"{one.depth} queued"


async def _rates(app: App, part: str) -> Names:
    for name in await app.rates.list():
        yield name, ""


async def _schedules(app: App, part: str) -> Names:
    for one in await app.schedules.list():
        yield one.name, one.task


async def _webhooks(app: App, part: str) -> Names:
    for one in await app.webhooks.list():
        yield one.id, one.url


async def _workers(app: App, part: str) -> Names:
    for row in await app.workers.list():
        yield str(row.info.id), row.info.name or row.info.host


async def _batches(app: App, part: str) -> Names:
    for one in (await app.batches.list()).items:
        yield str(one.id), ""


async def _jobs(app: App, part: str) -> Names:
    """Yield the newest jobs, and others with this part in their ids."""
    given = False
    for job in (await app.jobs.list(limit=_MAX_JOBS)).items:
        given = given or str(job.id).startswith(part)
        yield str(job.id), f"{job.task} {job.status}"
    if not given and len(part) >= _MIN_PART_CHARACTERS:
        for job in (await app.jobs.list(text=part, limit=_MAX_JOBS)).items:
            yield str(job.id), f"{job.task} {job.status}"


_KINDS: dict[str, Callable[[App, str], Names]] = {
    "task": _tasks,
    "queue": _queues,
    "rate": _rates,
    "schedule": _schedules,
    "webhook": _webhooks,
    "worker": _workers,
    "batch": _batches,
    "job": _jobs,
}


def leave(end: SystemExit) -> NoReturn:
    """End a process that completed, without waiting for a store that did not answer."""
    sys.stdout.flush()
    os._exit(end.code if isinstance(end.code, int) else 0)
