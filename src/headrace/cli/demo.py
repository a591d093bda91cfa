"""``demo``: sample tasks on a store of their own, to look at."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.failures import DONE, FAILED
from headrace.cli.options import common
from headrace.cli.output import console, document, is_terminal, say
from headrace.cli.state import State

if TYPE_CHECKING:
    from headrace.cli.demo_play import Scenario

__all__ = ["demo"]

PAUSE = 4.0
"""Seconds between the rounds of the endless demo."""


@click.command()
@click.option("--once", is_flag=True, help="Play the scenario once, check what came of it, and end.")
@common
def demo(state: State, once: bool) -> int:
    """Run sample tasks and watch them: progress, retries, a dead letter, a schedule, a snooze, a cancel.

    Uses a SQLite file in a temporary directory unless --url names a store. With --once the exit code is 0 only if every
    job went the way it should.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        url = state.url or f"sqlite:///{Path(folder) / 'demo.db'}"
        from headrace.cli.demo_app import app

        with app.override(url=url):
            try:
                return asyncio.run(_play(state, url, once))
            except KeyboardInterrupt:
                if once:
                    raise
                return DONE


async def _play(state: State, url: str, once: bool) -> int:
    from headrace.cli.demo_app import app
    from headrace.cli.demo_play import Scenario
    from headrace.cli.demo_view import show

    hint = f"in another terminal: headrace jobs --url {url}"
    if not state.json and not is_terminal():
        say(hint)
    async with app, app.worker(concurrency=8, grace=2):
        view = asyncio.create_task(show(app, state, hint + ("" if once else "\nCtrl-C ends the demo")))
        try:
            while True:
                scenario = Scenario(app)
                playing = asyncio.create_task(scenario.play())
                # The view never ends by itself: if it is done first, it has failed, and its error is the answer.
                done, _ = await asyncio.wait({playing, view}, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if once:
                    break
                await asyncio.sleep(PAUSE)
        finally:
            view.cancel()
            with suppress(asyncio.CancelledError):
                await view
        return await _summary(scenario, state)


async def _summary(scenario: Scenario, state: State) -> int:
    findings = await scenario.findings()
    if state.json:
        document([finding._asdict() for finding in findings])
    else:
        from rich.text import Text

        from headrace.cli.render import table

        made = table("", "what", "expected", "found")
        for one in findings:
            sign = Text("✓", "green") if one.ok else Text("✗", "bold red")
            made.add_row(sign, Text(one.what), Text(one.expected), Text(one.found, "" if one.ok else "red"))
        out = console()
        out.print(made)
        good = sum(one.ok for one in findings)
        out.print(Text(f"\n{good} of {len(findings)} as expected", "green" if good == len(findings) else "bold red"))
    return DONE if all(one.ok for one in findings) else FAILED
