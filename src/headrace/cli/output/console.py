"""Output of commands: data to stdout, the rest to stderr; colours only for people who can see them.

All that commands print goes through here, and nothing in it controls the terminal: a submitter chooses what stands in a
job. Hints name the command as it was called, so that they can be typed as they are printed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Collection
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any

import click

from headrace.core.control_characters import printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console
import shlex
from pathlib import Path

__all__ = [
    "complain",
    "console",
    "document",
    "echo",
    "hint",
    "is_relative",
    "is_terminal",
    "line",
    "listing",
    "program",
    "say",
    "tell",
    "warn",
    "wrapped",
]


PIPE_COLUMNS = 400
"""Columns for readers that are not terminals: nothing is cut for a program."""


def is_terminal(stderr: bool = False) -> bool:
    """Return whether a person reads this stream."""
    stream = sys.stderr if stderr else sys.stdout
    return stream.isatty()


def console(stderr: bool = False) -> Console:
    """Return a rich console on stdout (or stderr): plain text for programs, or when NO_COLOR is set."""
    from headrace.cli.output.text import PrintableConsole

    wide = None if is_terminal(stderr) else PIPE_COLUMNS
    return PrintableConsole(stderr=stderr, width=wide, highlight=False, markup=False, emoji=False, soft_wrap=False)


def echo(text: str = "", *, err: bool = False, lines: bool = False, nl: bool = True) -> None:
    """Print a line on stdout (or stderr), that stays one line whatever is in it; ``lines``: it may be several."""
    click.echo(printable(text, lines=lines), err=err, nl=nl)


def document(value: Any) -> None:
    """Print one JSON document, laid out for people if a person reads it."""
    import msgspec

    from headrace.cli.options import vocabulary
    from headrace.core.words import worded

    text = printable_json(msgspec.json.encode(worded(value, vocabulary())).decode())
    if is_terminal():
        text = msgspec.json.format(text, indent=2)
    click.echo(text)


def listing(json: bool, found: Collection[Any], empty: str, view: Callable[[Any], Any]) -> None:
    """Print a list: as one JSON document, as ``view`` makes it with the module ``output.store``, or ``empty``."""
    if json:
        document(found)
    elif not found:
        say(empty)
    else:
        from headrace.cli.output import store

        console().print(view(store))


def line(value: Any) -> None:
    """Print one JSON document on one line, at once: the output of following commands for programs."""
    import msgspec

    click.echo(printable_json(msgspec.json.encode(value).decode()))
    sys.stdout.flush()


def tell(sentences: str) -> None:
    """Print sentences as data, one after another."""
    click.echo(wrapped(printable(sentences)))


def say(message: str) -> None:
    """Print a line for the person that is not data."""
    click.echo(wrapped(message, stderr=True), err=True)


def warn(message: str) -> None:
    """Print a line for the person that should not be missed."""
    _marked("warning: ", "yellow", message)


def complain(message: str) -> None:
    """Print an error for the person."""
    _marked("error: ", "red", message)


def wrapped(text: str, *, stderr: bool = False) -> str:
    """Break sentences between words for a person, so that no terminal breaks them within. For programs they stay as
    they are, and so does what is longer than a line, such as an id. Control characters but newlines and tabs are
    spelled out."""
    text = printable(text, lines=True)
    if not is_terminal(stderr):
        return text
    columns = shutil.get_terminal_size().columns
    fill = TextWrapper(columns, break_long_words=False, break_on_hyphens=False, replace_whitespace=False).fill
    return "\n".join(line if len(line) <= columns else fill(line) for line in text.split("\n"))


def _marked(mark: str, colour: str, message: str) -> None:
    text = wrapped(f"{mark}{message}", stderr=True).removeprefix(mark)
    click.echo(click.style(mark, fg=colour) + text, err=True, color=_colour())


def _colour() -> bool | None:
    # click drops colours when stderr is no terminal; NO_COLOR is ours to honour.
    return False if os.environ.get("NO_COLOR") else None


def program() -> str:
    """Return what a person types for ``headrace`` here: its name if a shell finds it, else the way it was called."""
    called = sys.argv[0]
    path = Path(called)
    if path.name == "__main__.py":
        return f"{shlex.quote(_near(sys.executable))} -m headrace"
    found = shutil.which(path.name)
    if not path.exists() or (found is not None and os.path.samefile(found, called)):
        return "headrace"
    return shlex.quote(called)


def is_relative() -> bool:
    """Return whether what :func:`program` returns holds in this folder only."""
    return os.sep in (words := shlex.split(program())[0]) and not os.path.isabs(words)


def hint(*words: str) -> str:
    """Return a command line that can be typed as it is."""
    return f"{program()} {shlex.join(words)}"


def _near(path: str) -> str:
    """Return the path from here where it lies below, as ``.venv/bin/python``."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
