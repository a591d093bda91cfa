"""The CLI reference, rendered from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from headrace.cli.root import cli

__all__ = ["page"]


SHARED = frozenset({"--url", "--app", "--json", "--debug", "--help"})
"""Options that every command has; explained once."""


def page() -> str:
    """Return the whole command line as a page of Markdown: every command, argument and option."""
    root = click.Context(cli, info_name="headrace")
    shared = "Every command takes these options too, except `--version`; they may stand before or after its name."
    lines = ["# Command line", "", *_body(cli, root), shared, "", *_commands(cli, root, 2)]
    return "\n".join(lines).rstrip() + "\n"


def _commands(group: click.Group, parent: click.Context, depth: int) -> Iterator[str]:
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None or command.hidden:
            continue
        ctx = click.Context(command, info_name=name, parent=parent)
        yield from (f"{'#' * depth} {ctx.command_path}", "")
        yield from _body(command, ctx)
        if isinstance(command, click.Group):
            yield from _commands(command, ctx, depth + 1)


def _body(command: click.Command, ctx: click.Context) -> Iterator[str]:
    yield from ("```", command.get_usage(ctx).removeprefix("Usage: "), "```", "")
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    yield from (text, "")
    options = [
        param
        for param in command.get_params(ctx)
        if isinstance(param, click.Option)
        and not param.hidden
        and (ctx.parent is None or SHARED.isdisjoint(param.opts))
    ]
    if options:
        yield from ("| option | meaning |", "|---|---|")
        yield from (_option(option, ctx) for option in options)
        yield ""


def _option(option: click.Option, ctx: click.Context) -> str:
    record = option.get_help_record(ctx)
    names, meaning = record or ("", "")
    return f"| `{_cell(names)}` | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
