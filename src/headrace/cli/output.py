"""Where words go: data to stdout, the rest to stderr; colours only for people who can see them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "document", "is_terminal", "line", "say", "warn"]

WIDE = 400
"""Columns for readers that are not terminals: nothing is cut for a program."""


def is_terminal(stderr: bool = False) -> bool:
    """Whether a person is looking at this stream."""
    stream = sys.stderr if stderr else sys.stdout
    return stream.isatty()


def console(stderr: bool = False) -> Console:
    """A rich console on stdout (or stderr): plain text when nobody is looking, or when NO_COLOR asks for it."""
    from rich.console import Console

    wide = None if is_terminal(stderr) else WIDE
    return Console(stderr=stderr, width=wide, highlight=False, markup=False, emoji=False, soft_wrap=False)


def document(value: Any) -> None:
    """Print one JSON document, laid out for people if a person is looking."""
    import msgspec

    text = msgspec.json.encode(value)
    if is_terminal():
        text = msgspec.json.format(text, indent=2)
    click.echo(text)


def line(value: Any) -> None:
    """Print one JSON document on one line, at once: how following commands speak to programs."""
    import msgspec

    click.echo(msgspec.json.encode(value))
    sys.stdout.flush()


def say(message: str) -> None:
    """Tell the person something that is not data."""
    click.echo(message, err=True)


def warn(message: str) -> None:
    """Tell the person something that should not be missed."""
    click.echo(click.style("warning: ", fg="yellow") + message, err=True, color=_colour())


def _colour() -> bool | None:
    # click drops colours when stderr is no terminal; NO_COLOR is ours to honour.
    return False if os.environ.get("NO_COLOR") else None
