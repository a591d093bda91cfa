"""``demo``: sample tasks on a store of their own, to look at."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.exit_codes import DONE, FAILED, INTERRUPTED
from headrace.cli.options import State, common
from headrace.cli.output.console import console, document, echo, hint, is_relative, is_terminal, say
from headrace.cli.output.words import counted, short, span
from headrace.cli.process.signals import on_signals
from headrace.cli.session import plain_warnings
from headrace.errors import MissingExtra

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.cli.demo.scenario import Scenario

__all__ = ["demo"]

ROUND_PAUSE_SECONDS = 4.0
"""Seconds between the rounds of the endless demo."""

STOP_GRACE_SECONDS = 0.2
"""Seconds that running jobs have to finish when the demo ends: an interrupt must not take long."""

DASHBOARD_PORT = 8470
"""The port of the dashboard, unless it is in use."""

STORE_AGE_SECONDS = 86400.0
"""Seconds after which the store of an earlier demo is removed by the next one."""


@click.command()
@click.option("--once", is_flag=True, help="Play the scenario once, check what came of it, and end.")
@common
def demo(state: State, once: bool) -> int:
    """Run sample tasks and watch them: progress, retries, a dead letter, a schedule, a snooze, a cancel.

    Ctrl-C ends it. With the extra hub, and without --once, it serves the dashboard meanwhile, and prints its address.
    Unless --url names a store it uses a SQLite file in the temporary directory, which stays for you to look at; a later
    demo removes it when it is a day old. With --once the exit code is 0 only if every job went the way it should.
    """
    try:
        from headrace.cli.demo.app import app

        url = state.url or new_store()
        with plain_warnings(), app.override(url=url):
            return asyncio.run(_play(app, state, url, once))
    except KeyboardInterrupt:  # before there was anything to sum up
        say("the demo was interrupted before its first job")
        return INTERRUPTED if once else DONE


def new_store() -> str:
    """Return the path of a new store, with a name short enough for a hint to fit one line."""
    mine = os.getuid() if hasattr(os, "getuid") else None
    for file in Path(tempfile.gettempdir()).glob("headrace-*/demo"):
        found = file.stat()
        if mine in (None, found.st_uid) and time.time() - found.st_mtime > STORE_AGE_SECONDS:
            shutil.rmtree(file.parent, ignore_errors=True)
    return f"sqlite:///{Path(tempfile.mkdtemp(prefix='headrace-')) / 'demo'}"


async def _play(app: App, state: State, url: str, once: bool) -> int:
    from headrace.cli.demo.screen import show
    from headrace.engines.connect import redact

    store = redact(url)
    where = "from another terminal" + (", in this folder:" if is_relative() else ":")
    hints = f"look {where}", hint("jobs", "--url", store)
    stop, rounds = asyncio.Event(), list["Scenario"]()
    async with app:
        with on_signals(stop.set, stop.set):
            async with app.worker(concurrency=8, grace=STOP_GRACE_SECONDS), _dashboard(app, wanted=not once) as address:
                above = [] if address is None else [f"watch it in a browser: {address}"]
                if not state.json and not is_terminal():
                    echo("\n".join([*above, *hints]), err=True, lines=True)
                # The view never ends by itself: if it is done first, it has failed, and its error is raised.
                await _first(show(app, state, rounds, hints, above), _rounds(app, rounds, once), stop.wait())
            if once and not stop.is_set():
                code = await _judged(rounds[-1], state)
            else:
                await _sum_up(app, rounds)
                code = INTERRUPTED if once else DONE
            if not state.json:
                await _say_where(app, store)
    return code


@asynccontextmanager
async def _dashboard(app: App, *, wanted: bool) -> AsyncIterator[str | None]:
    """Serve the dashboard meanwhile and yield its address; None: it is not installed, or the demo is too short."""
    if not wanted:
        yield None
        return
    try:
        from headrace.hub import Hub, HubOptions
        from headrace.hub.server.server import HubServer, listen
    except MissingExtra:
        yield None
        return
    try:
        listener = listen("127.0.0.1", DASHBOARD_PORT)
    except OSError:  # the port is in use
        listener = listen("127.0.0.1", 0)
    options = HubOptions(maintenance=False, webhooks=False, access_log=False, grace=STOP_GRACE_SECONDS)
    server = HubServer(Hub(app, options))
    serving = await server.begin(listener)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        server.stop()  # at once, without waiting for a browser
        await serving


async def _first(*works: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of them has ended and end the others; raise what went wrong with the frame that did it."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        # Called once: the second time a task raises its error, the traceback is lost.
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end


async def _rounds(app: App, rounds: list[Scenario], once: bool) -> None:
    """Play the scenario, once or for ever."""
    from headrace.cli.demo.scenario import Scenario

    while True:
        rounds.append(Scenario(app))
        await rounds[-1].play()
        if once:
            return
        await asyncio.sleep(ROUND_PAUSE_SECONDS)


async def _sum_up(app: App, rounds: list[Scenario]) -> None:
    """Print in a line what was to be seen."""
    if not rounds:
        return
    from headrace.cli.demo.screen import ENDS

    statuses = (await app.stats.counts()).statuses
    ends = [f"{statuses.get(status, 0):,} {status}" for status in ENDS if statuses.get(status, 0)]
    left = sum(statuses.values()) - sum(statuses.get(status, 0) for status in ENDS)
    took = span((app.host.clock.now() - rounds[0].began).total_seconds())
    words = ", ".join([*ends, f"{left:,} not ended"] if left else ends)
    say(f"headrace demo, {took}, {counted(len(rounds), 'round')}: {words}")


async def _say_where(app: App, store: str) -> None:
    """Print how to look at what is there now."""
    from headrace.core.status import Status

    found = await app.jobs.list(status=[Status.FAILED], limit=1)
    hints = [hint("jobs", "--url", store), *(hint("show", short(job.id), "--url", store) for job in found.items)]
    # Not wrapped between words: the terminal breaks what is too long so that it can still be copied.
    echo("\n".join(["look at the jobs, or at one, as long as you like:", *hints]), err=True, lines=True)


async def _judged(scenario: Scenario, state: State) -> int:
    findings = await scenario.findings()
    good = sum(one.ok for one in findings)
    if state.json:
        document([finding._asdict() for finding in findings])
    else:
        from rich.table import Table

        from headrace.cli.output.text import Text

        made = Table.grid(padding=(0, 2))
        for one in findings:
            sign = Text("✓", "green") if one.ok else Text("✗", "bold red")
            found = Text(one.found) if one.ok else Text(f"{one.found}; expected {one.expected}", "red")
            made.add_row(sign, Text(one.what), found)
        out = console()
        out.print(made)
        out.print()
        out.print(Text(f"{good} of {len(findings)} as expected", "green" if good == len(findings) else "bold red"))
    return DONE if good == len(findings) else FAILED
