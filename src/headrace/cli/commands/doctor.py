"""``doctor``: check everything that can be wrong, and say what to do about it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.exit_codes import DONE, FAILED, sentence
from headrace.cli.options import State, common
from headrace.cli.output.console import console, document
from headrace.cli.session import StoreUnusable, choose, missing, opened, whose_url
from headrace.errors import ConfigError, HeadraceError

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.engine import Check

__all__ = ["doctor"]

BUILT = datetime(2025, 1, 1, tzinfo=UTC)
"""No machine that runs this code lives before this moment."""


@click.command()
@common
def doctor(state: State) -> int:
    """Check the machine, the settings, the App and the store; say what to do about what is wrong.

    Exit code 1 if any check failed.
    """
    found = [*environment(), *_app_checks(state)]
    if state.json:
        document(found)
    else:
        _print(found)
    return FAILED if any(check.level == "fail" for check in found) else DONE


def environment() -> list[Check]:
    """Return the checks that need no store."""
    return [_python(), *_versions(), _clock(), _zones()]


def _python() -> Check:
    from headrace.engine import Check

    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", "ok", f"{version} ({sys.executable})")


def _versions() -> list[Check]:
    from importlib.metadata import PackageNotFoundError, version

    from headrace.engine import Check

    found = []
    for name in ("headrace", "msgspec", "apsw", "cronsim"):
        try:
            found.append(Check(name, "ok", version(name)))
        except PackageNotFoundError:
            found.append(Check(name, "fail", "not installed", f"pip install {name}"))
    return found


def _clock() -> Check:
    from headrace.core.times import moment
    from headrace.engine import Check

    now, before = datetime.now(UTC), time.monotonic()
    if now < BUILT:
        return Check("clock", "fail", f"the clock says {moment(now, None)}", "set the clock, e.g. by NTP")
    if time.monotonic() < before:
        return Check("clock", "fail", "the monotonic clock runs backwards", "this machine cannot run workers")
    return Check("clock", "ok", moment(now, None))


def _zones() -> Check:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from headrace.engine import Check

    try:
        ZoneInfo("Europe/Berlin")
    except ZoneInfoNotFoundError:
        return Check("time zones", "fail", "no time zone data", "pip install tzdata")
    return Check("time zones", "ok", "there")


def _app_checks(state: State) -> list[Check]:
    """Check that the App can be imported and the settings can be read, and return what the store itself reports."""
    from headrace.core.explain.explanation import many
    from headrace.engine import Check

    try:
        app, url = choose(state)
        app._load()  # imports have more tasks
    except ConfigError as error:
        return [Check("app" if state.app else "settings", "fail", str(error), None)]
    found = []
    if app._handlers:
        names = sorted({handler.name for handler in app._handlers.values()})
        found.append(Check("app", "ok", f"{many(len(names), 'task')}: {', '.join(names)}"))
    try:
        with app.override(url=url) if url else nullcontext():
            found.append(_settings(app, state))
            found += asyncio.run(_ask(app))
    except (HeadraceError, StoreUnusable) as error:
        found.append(Check("store", "fail", sentence(error), None))
    return found


def _settings(app: App, state: State) -> Check:
    """Return which store is meant, by which settings, and what else was read."""
    from headrace.engine import Check
    from headrace.engines.connect import redact

    others = [source for source in _sources(state) if source != "HEADRACE_URL"]
    read = f"; settings are read from {', '.join(others)}" if others else ""
    message = f"url {redact(app.settings.url)} {whose_url(app)}{read}"
    won, lost = app._url_source()
    if won == "App(...)" and any("HEADRACE_URL" in one for one in lost):
        return Check(
            "settings", "warn", message, "leave the url out of App(...) to have HEADRACE_URL decide, or unset it"
        )
    return Check("settings", "ok", message)


def _sources(state: State) -> list[str]:
    """Return the sources of settings, weakest first."""
    from headrace.config import Settings, find_file

    file = find_file(Path.cwd())
    variables = [f"HEADRACE_{name.upper()}" for name in Settings.__struct_fields__]
    found = [str(file)] if file else []
    found += [name for name in variables if os.environ.get(name)]
    return [*found, f"--app {state.app}"] if state.app else found


async def _ask(app: App) -> list[Check]:
    """Return what the store reports; it is not made for that."""
    from headrace.engine import Check

    if not await app.store.exists():
        return [Check("store", "fail", missing(app), "check the url; headrace migrate makes the store at once")]
    async with opened(app):
        return await app.store.doctor()


def _print(found: list[Check]) -> None:
    from rich.table import Table

    from headrace.cli.output.text import Text

    signs = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "bold red")}
    made = Table.grid(padding=(0, 2))
    for check in found:
        sign, style = signs[check.level]
        made.add_row(Text.assemble((sign, style), f" {check.name}"), Text(check.message))
        if check.remedy and check.level != "ok":
            made.add_row("", Text(f"→ {check.remedy}", "bold"))
    made.columns[0].no_wrap = True
    out = console()
    out.print(made, soft_wrap=not out.is_terminal)
