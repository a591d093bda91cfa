"""The ``headrace`` group: its commands, and the one place where their errors end."""

from __future__ import annotations

import importlib
import io
import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import click

from headrace.cli.failures import DONE, report
from headrace.cli.options import target
from headrace.cli.state import State

__all__ = ["cli", "main"]


COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("demo", "Run sample tasks and watch them."),
    "worker": ("worker", "Run the tasks of an App."),
    "hub": ("hub", "Serve an App over HTTP and WebSocket."),
    "up": ("up", "Run a hub and a worker in one process."),
    "submit": ("submit", "Submit a job and print its id."),
    "run": ("submit", "Submit a job, wait for it, print its result."),
    "jobs": ("jobs", "List jobs."),
    "show": ("jobs", "Show one job and its timeline."),
    "watch": ("jobs", "Follow a job until it ends."),
    "feed": ("feed", "Follow many jobs as they change."),
    "logs": ("logs", "Show what a job's handler said to logging."),
    "explain": ("jobs", "Say why a job is where it is, or why a worker gets nothing."),
    "batch": ("batch", "Show how a batch stands, wait for it, cancel it."),
    "batches": ("batch", "List batches."),
    "cancel": ("acts", "Cancel jobs."),
    "retry": ("acts", "Give failed or cancelled jobs another go."),
    "rerun": ("acts", "Submit ended jobs once more, as new jobs."),
    "discard": ("acts", "Take completed or failed jobs off the books."),
    "postpone": ("changes", "Let jobs wait for another time."),
    "run-now": ("changes", "Put scheduled and retrying jobs in line at once."),
    "move": ("changes", "Move jobs to another queue."),
    "reprioritise": ("changes", "Give jobs another priority."),
    "resolve": ("changes", "Set the outcome of jobs by hand."),
    "failures": ("groups", "List what fails, in groups of jobs that failed alike."),
    "stats": ("admin", "Count jobs, and balance the books."),
    "charts": ("charts", "Show what was finished of late, and how long it took."),
    "queues": ("queues", "List, pause, resume and set queues."),
    "limits": ("limits", "List and set how many jobs of a task there may be."),
    "rates": ("limits", "List and set rate limits: how many jobs may start per span of time."),
    "schedules": ("schedules", "List, create, pause, trigger and delete schedules."),
    "tasks": ("admin", "List tasks."),
    "workers": ("admin", "List workers, and how they are; have one leave."),
    "keys": ("keys", "List, create and revoke keys of the hub."),
    "audit": ("admin", "Show who changed queues, limits, rates, schedules and keys."),
    "prune": ("admin", "Delete ended jobs past their retention."),
    "migrate": ("admin", "Bring the store's schema up to date."),
    "doctor": ("doctor", "Check everything, and say what to do."),
    "verify": ("verify", "Compare the books with the jobs."),
}
"""Name → the module it lives in, under the same name, and its line in the list; in the order a newcomer meets them."""


class Root(click.Group):
    """A group whose commands return exit codes and raise headrace's errors."""

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
        """Every command, also those not imported yet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"headrace.cli.{COMMANDS[cmd_name][0]}"), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="headrace", message="headrace %(version)s")
@target
def cli() -> None:
    """Durable jobs: run workers, submit work, look at every job.

    The store is chosen by --url, by the App that --app names, by HEADRACE_URL or HEADRACE_APP, or by headrace.toml;
    without any of them it is the file headrace.db in this directory.

    Exit codes: 0 done, 1 a job or a check failed, 2 usage, 3 not found, 4 refused by the lifecycle, 5 the store cannot
    be used, 130 interrupted.
    """


def main() -> None:
    """The entry point of the ``headrace`` command."""
    signal.signal(signal.SIGTERM, _terminated)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A bar or an arrow that a stream cannot show is no reason to show nothing.
        sys.stdout.reconfigure(errors="replace")
    cli.main(prog_name="headrace")


def _terminated(number: int, frame: FrameType | None) -> None:
    """Take SIGTERM for an interrupt: a command cleans up, and cancels what it owns; a worker has its own ways."""
    interrupt = signal.getsignal(signal.SIGINT)
    if callable(interrupt):
        interrupt(signal.SIGINT, frame)
    else:  # ignored, as in the background of a shell
        raise KeyboardInterrupt
