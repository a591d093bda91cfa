"""No page offers what is not there: every command, flag and engine that is named exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headrace import App
from headrace.cli.root import cli
from tests.docs.pages import ROOT, WRITTEN, blocks, name, prose

_INLINE = re.compile(r"`(headrace [^`]+)`")
_LINE = re.compile(r"^(?:\$ |ExecStart=\S*/)(headrace [^\n]+)$", re.MULTILINE)
_URL = re.compile(r"`?\b((?:[a-z][a-z0-9+]*)://[^\s`\"')]*)")

FRONT = ["README.md", "docs/quickstart.md", "docs/engines/index.md", "docs/reference/settings.md"]
"""Where people look for what there is."""


def commands(text: str) -> Iterator[str]:
    """The command lines that a page shows."""
    yield from _INLINE.findall(prose(text))
    for block in blocks(text):
        yield from _LINE.findall(block.body)


def unknown(line: str) -> list[str]:
    """What headrace does not understand in a command line: words that are no command, flags that are none."""
    words = shlex.split(line.partition(" #")[0])[1:]
    command: click.Command = cli
    ctx = click.Context(cli, info_name="headrace")
    flags = _flags(command, ctx)
    wrong = []
    while words:
        word = words.pop(0)
        if word.startswith("-"):
            option, sign, _ = word.partition("=")
            if option not in flags:
                wrong.append(option)
            elif flags[option] and not sign and words:
                words.pop(0)
        elif isinstance(command, click.Group) and (found := command.get_command(ctx, word)) is not None:
            command, ctx = found, click.Context(found, info_name=word, parent=ctx)
            flags |= _flags(command, ctx)
        elif command is cli:
            return [*wrong, word]
    return wrong


def _flags(command: click.Command, ctx: click.Context) -> dict[str, bool]:
    """The flags of a command, each with whether a value follows it."""
    options = [param for param in command.get_params(ctx) if isinstance(param, click.Option)]
    return {
        word: not (option.is_flag or option.count)
        for option in options
        for word in (*option.opts, *option.secondary_opts)
    }


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_command_line_of_a_page_can_be_typed(page: Path) -> None:
    found = {line: unknown(line) for line in commands(page.read_text(encoding="utf-8"))}
    assert {line: wrong for line, wrong in found.items() if wrong} == {}


def test_a_command_line_that_cannot_be_typed_is_found() -> None:
    text = "`headrace fly`\n```console\n$ headrace jobs --colour red --limit 3\n$ headrace queues pause mail\n```\n"
    assert [unknown(line) for line in commands(text)] == [["fly"], ["--colour"], []]


@pytest.mark.parametrize("page", FRONT)
def test_every_store_that_is_offered_can_be_used(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    offered = [url for url in _URL.findall(text) if not url.startswith("http")]
    assert offered
    for url in offered:
        App(url)._new_engine()


@pytest.mark.parametrize("page", [*FRONT, "docs/glossary.md", "docs/index.md"])
def test_no_engine_is_offered_that_is_to_come(page: str) -> None:
    assert not re.search(r"\b(redis|s3|object stores?)\b", (ROOT / page).read_text(encoding="utf-8"), re.IGNORECASE)


def test_every_extra_that_is_offered_is_for_something_in_the_code() -> None:
    behind = {
        "postgres",
        "uvloop",
        "reload",
        "pydantic",
        "otel",
        "prometheus",
        "conformance",
        "hub",
        "fastapi",
        "starlette",
        "flask",
        "django",
    }
    text = "\n".join(page.read_text(encoding="utf-8") for page in WRITTEN)
    named = {extra for found in re.findall(r"headrace\[([\w,]+)\]", text) for extra in found.split(",")}
    assert named <= behind
    assert {"postgres", "uvloop"} <= named
