"""``doctor``: look at everything that can be wrong, and say what to do about it."""

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

from headrace.cli.failures import DONE, FAILED, sentence
from headrace.cli.options import common
from headrace.cli.output import console, document
from headrace.cli.run import StoreUnusable, choose, opened
from headrace.cli.state import State
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
    """What can be told without a store."""
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
    from headrace.core.moments import moment
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
    """The App can be imported, the settings can be read, and what the store itself says."""
    from headrace.engine import Check
    from headrace.wiring import redact

    try:
        app, url = choose(state)
    except ConfigError as error:
        return [Check("app" if state.app else "settings", "fail", str(error), None)]
    found = []
    if app.handlers:
        names = sorted({handler.name for handler in app.handlers.values()})
        found.append(Check("app", "ok", f"{len(names)} tasks: {', '.join(names)}"))
    try:
        with app.override(url=url) if url else nullcontext():
            found.append(
                Check("settings", "ok", f"url {redact(app.settings.url)}; read from {', '.join(_sources(state))}")
            )
            found += asyncio.run(_ask(app))
    except (HeadraceError, StoreUnusable) as error:
        found.append(Check("store", "fail", sentence(error), None))
    return found


def _sources(state: State) -> list[str]:
    """Where settings come from, weakest first."""
    from headrace.config import Settings, find_file

    file = find_file(Path.cwd())
    variables = [f"HEADRACE_{name.upper()}" for name in Settings.__struct_fields__]
    found = [str(file)] if file else []
    found += [name for name in variables if os.environ.get(name)]
    found += [f"--app {state.app}"] if state.app else []
    found += ["--url"] if state.url else []
    return found or ["defaults"]


async def _ask(app: App) -> list[Check]:
    async with opened(app):
        return await app.doctor()


def _print(found: list[Check]) -> None:
    from rich.text import Text

    signs = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "bold red")}
    width = max(len(check.name) for check in found)
    out = console()
    for check in found:
        sign, style = signs[check.level]
        out.print(Text.assemble((sign, style), f" {check.name:<{width}}  {check.message}"), soft_wrap=True)
        if check.remedy and check.level != "ok":
            out.print(Text(f"  {'':<{width}}  → {check.remedy}", "bold"), soft_wrap=True)
