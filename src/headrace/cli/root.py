"""The ``headrace`` group: its commands, and the one place where their errors end."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import click

from headrace.cli.completion import INSTRUCTION, leave
from headrace.cli.exit_codes import DONE, report
from headrace.cli.options import State, target
from headrace.core.status import ACTION_LINES

__all__ = ["cli", "main"]


COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("demo.command", "Run sample tasks and watch them."),
    "worker": ("commands.worker", "Run the tasks of an App."),
    "hub": ("commands.hub", "Serve an App over HTTP and WebSocket."),
    "up": ("commands.up", "Run a hub and a worker in one process."),
    "submit": ("commands.submit", "Submit a job and print its id."),
    "run": ("commands.submit", "Submit a job, wait for it, print its result."),
    "jobs": ("commands.jobs", "List jobs."),
    "show": ("commands.jobs", "Show one job and its timeline."),
    "watch": ("commands.jobs", "Follow a job until it ends."),
    "feed": ("commands.feed", "Follow many jobs as they change."),
    "logs": ("commands.logs", "Show what a job's handler said to logging."),
    "explain": ("commands.jobs", "Say why a job is where it is, or why a worker gets nothing."),
    "failures": ("commands.failures", "List what fails, in groups of jobs that failed alike."),
    "batch": ("commands.batches", "Show how a batch stands, wait for it, cancel it."),
    "batches": ("commands.batches", "List batches."),
    "ACTIONS": ("commands.actions", ""),
    "stats": ("commands.stats", "Count jobs, and balance the books."),
    "charts": ("commands.stats", "Show what was finished of late, and how long it took."),
    "scale": ("commands.scale", "Show how many slots each queue needs, and how many there are."),
    "queues": ("commands.queues", "List, pause, resume and set queues."),
    "limits": ("commands.limits", "List and set how many jobs of a task there may be."),
    "rates": ("commands.limits", "List and set rate limits: how many jobs may start per span of time."),
    "schedules": ("commands.schedules", "List, create, pause, trigger and delete schedules."),
    "tasks": ("commands.tasks", "List tasks."),
    "workers": ("commands.workers", "List workers, and how they are; have one leave."),
    "keys": ("commands.keys", "List, create and revoke keys of the hub."),
    "webhooks": ("commands.webhooks", "List, add, test and delete webhooks, and see deliveries."),
    "audit": ("commands.store", "Show who changed queues, limits, rates, schedules, keys and webhooks."),
    "prune": ("commands.store", "Delete ended jobs past their retention."),
    "migrate": ("commands.store", "Bring the store's schema up to date."),
    "doctor": ("commands.doctor", "Check everything, and say what to do."),
    "verify": ("commands.verify", "Compare the books with the jobs."),
}
"""Name → the module it lives in, under the same name, and its line in the list; in the order a newcomer meets them.
At ``ACTIONS`` are those that are made from the table of actions."""

_HEADINGS = {
    "demo": "Run",
    "submit": "Submit",
    "jobs": "Look at jobs",
    "cancel": "Change jobs",
    "stats": "Measure",
    "queues": "Manage",
    "prune": "Keep the store in order",
}
"""The first command of each group in the list → the heading of the group."""


def _listed() -> dict[str, str]:
    """Return all commands with their summaries, without importing them."""
    lines = dict[str, str]()
    for name, (_, line) in COMMANDS.items():
        lines |= {name: line} if line else {verb.replace("_", "-"): text for verb, text in ACTION_LINES.items()}
    return lines


class Root(click.Group):
    """A group with commands that return exit codes and raise headrace's errors."""

    def main(  # type: ignore[override]  # click's overloads tell by standalone_mode whether it returns
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line and leave with its exit code."""
        state = extra.setdefault("obj", State())
        try:
            code = super().main(args, prog_name, standalone_mode=False, **extra)
        except (Exception, KeyboardInterrupt) as error:
            code = report(error, state.debug, json=state.log_format == "json")
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else DONE)
        return code

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, also those not imported yet."""
        return list(_listed())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command and return it."""
        place, line = COMMANDS.get(cmd_name, COMMANDS["ACTIONS"])
        module = importlib.import_module(f"headrace.cli.{place}")
        command = getattr(module, cmd_name) if line else module.COMMANDS.get(cmd_name)
        assert isinstance(command, click.Command | None)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in groups, without importing them."""
        lines = _listed()
        width, heading = max(map(len, lines)), "Commands"
        groups = dict[str, list[tuple[str, str]]]()
        for name, line in lines.items():
            heading = _HEADINGS.get(name, heading)
            groups.setdefault(heading, []).append((name.ljust(width), line))
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; :raises click.UsageError: there is none, with what may have been meant"""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0].startswith("-"):
                raise
            from headrace.client.api.tasks import resembling

            # click knows only commands that are imported.
            asked = resembling(args[0], _listed()).capitalize()
            raise click.UsageError(f"{error.message} {asked}".rstrip(), ctx) from None


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="headrace", message="headrace %(version)s")
@target
def cli() -> None:
    """Durable jobs: run workers, submit work, look at every job.

    The store is chosen by --url, by the App that --app names, by HEADRACE_URL or HEADRACE_APP, or by headrace.toml;
    without any of them it is the file headrace.db in this directory.

    Completion, in ~/.bashrc: eval "$(_HEADRACE_COMPLETE=bash_source headrace)"; zsh_source and fish_source for others.

    Exit codes: 0 done, 1 a job or a check failed, 2 usage, 3 not found, 4 refused by the lifecycle, 5 the store cannot
    be used, 130 interrupted.
    """


def main() -> None:
    """Run the ``headrace`` command."""
    signal.signal(signal.SIGTERM, _terminated)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A bar or an arrow that a stream cannot show is no reason to show nothing.
        sys.stdout.reconfigure(errors="replace")
    if INSTRUCTION not in os.environ:
        cli.main(prog_name="headrace")
        return
    try:
        cli.main(prog_name="headrace")
    except SystemExit as end:
        leave(end)


def _terminated(number: int, frame: FrameType | None) -> None:
    """Take SIGTERM for an interrupt: a command cleans up, and cancels what it owns; a worker has its own handlers."""
    interrupt = signal.getsignal(signal.SIGINT)
    if callable(interrupt):
        interrupt(signal.SIGINT, frame)
    else:  # ignored, as in the background of a shell
        raise KeyboardInterrupt
