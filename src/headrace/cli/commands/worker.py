"""``worker``: run an App's tasks, in this process or in several."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast
from uuid import UUID

import click

from headrace.cli.options import Address, State, address, common, duration, pairs
from headrace.cli.process.renewal import Limits, size
from headrace.cli.session import choose

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["check_tasks", "worker"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The flags of one worker process."""

    concurrency: int
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    offers: tuple[str, ...]
    burst: bool
    imports: tuple[str, ...]
    health: Address | None
    grace: float
    verbose: bool = False
    log_format: Literal["text", "json"] = "text"
    limits: Limits = field(default_factory=Limits)

    def flags(self, index: int) -> list[str]:
        """Return the same flags for the child of this index; each takes ports of its own."""
        words = ["--concurrency", str(self.concurrency), "--grace", str(self.grace)]
        words += [word for queue in self.queues for word in ("--queues", queue)]
        words += [word for task in self.tasks for word in ("--tasks", task)]
        words += [word for offer in self.offers for word in ("--offer", offer)]
        words += [word for module in self.imports for word in ("--import", module)]
        words += ["--burst"] if self.burst else []
        words += self.limits.flags()
        words += ["--verbose"] if self.verbose else []
        words += ["--log-format", self.log_format]
        if self.health:
            port = self.health.port + index if self.health.port else 0
            words += ["--health", str(self.health._replace(port=port))]
        return words


@dataclass(frozen=True)
class Place:
    """Arguments of a child, from its supervisor."""

    parent_fd: int | None = None
    """The reading end of a pipe that ends when the supervisor does."""
    id: UUID | None = None
    """The id of the worker."""
    after: UUID | None = None
    """The worker that had this position before; its process has ended."""
    renew_fd: int | None = None
    """The socket for renewal."""


@click.command()
@click.argument("where", required=False, metavar="[MODULE[:APP]]")
@click.option("--queues", "-q", multiple=True, metavar="NAME[,NAME]", help="Serve only these queues (default: all).")
@click.option("--tasks", "-t", multiple=True, metavar="NAME[,NAME]", help="Run only these tasks (default: all).")
@click.option(
    "--offer",
    "offers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Offer this to jobs that require something, as in gpu_memory_gb=24; may be given several times.",
)
@click.option("--concurrency", "-c", type=click.IntRange(1), default=10, show_default=True, help="Jobs at once.")
@click.option(
    "--processes",
    "-p",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Worker processes; from 2 on, a supervisor restarts those that die.",
)
@click.option("--burst", is_flag=True, help="End when no job is left that can run now.")
@click.option(
    "--max-jobs", type=click.IntRange(1), metavar="N", help="Renew a worker process after it has run so many jobs."
)
@click.option(
    "--max-memory",
    type=size,
    metavar="SIZE",
    help="Renew a worker process that has this much in memory, with its child processes, as in 512MB.",
)
@click.option("--reload", is_flag=True, help="Restart the workers when a Python file below this directory changes.")
@click.option("--import", "imports", multiple=True, metavar="MODULE", help="Import this too; it may define tasks.")
@click.option(
    "--health",
    type=address,
    envvar="HEADRACE_HEALTH",
    metavar="HOST:PORT",
    help="Serve /healthz, /livez and, for Prometheus, /metrics; port 0: a free one. With --processes each process "
    "takes the next port. Also HEADRACE_HEALTH.",
)
@click.option(
    "--grace",
    type=duration,
    default=15.0,
    show_default=True,
    metavar="DURATION",
    help="On stop, how long running jobs may take to finish; then they are released.",
)
@click.option("--verbose", "-v", is_flag=True, help="Say when each job starts and ends, and not only what fails.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="How the log is written to stderr: text, or one JSON object a line (default: HEADRACE_LOG_FORMAT, else text).",
)
@click.option("--parent-fd", type=int, hidden=True)
@click.option("--id", "id", type=click.UUID, hidden=True)
@click.option("--after", type=click.UUID, hidden=True)
@click.option("--renew-fd", type=int, hidden=True)
@common
def worker(
    state: State,
    where: str | None,
    queues: tuple[str, ...],
    tasks: tuple[str, ...],
    offers: tuple[str, ...],
    processes: int,
    reload: bool,
    parent_fd: int | None,
    id: UUID | None,
    after: UUID | None,
    renew_fd: int | None,
    max_jobs: int | None,
    max_memory: int | None,
    concurrency: int,
    burst: bool,
    imports: tuple[str, ...],
    health: Address | None,
    grace: float,
    verbose: bool,
    log_format: str | None,
) -> int:
    """Run the tasks of an App until stopped.

    The first SIGINT or SIGTERM stops it gracefully: running jobs may finish within the grace, then they are released,
    not charged. The second releases everything at once. The third exits without releasing.
    """
    from headrace.config import Settings

    state.log_format = log_format or Settings.load().log_format
    pairs(offers)  # what is no pair is refused before anything is started
    state.app = where or state.app
    if health and health.port + processes - 1 > 65535:
        raise click.UsageError(f"--health {health} leaves no ports for {processes} processes")
    options = Options(
        concurrency=concurrency,
        queues=_names(queues, "--queues"),
        tasks=_names(tasks, "--tasks"),
        offers=offers,
        burst=burst,
        imports=imports,
        health=health,
        grace=grace,
        verbose=verbose,
        limits=Limits(max_jobs, max_memory),
        log_format=cast('Literal["text", "json"]', state.log_format),
    )
    if processes > 1 or reload or (options.limits and parent_fd is None):
        return asyncio.run(_supervise(state, options, processes, reload))
    return _serve(state, options, Place(parent_fd, id, after, renew_fd))


def _names(words: tuple[str, ...], flag: str) -> tuple[str, ...]:
    names = tuple(name for word in words for name in word.split(",") if name)
    if words and not names:
        raise click.UsageError(f"{flag} names nothing: an empty value would mean all; leave it out for that")
    return names


def _serve(state: State, options: Options, place: Place) -> int:
    from headrace.cli.app_finder import import_module
    from headrace.cli.process.log_output import Teller
    from headrace.cli.process.signals import are_ours
    from headrace.cli.process.worker import serve
    from headrace.worker.process.loops import fast_loop, run_owned

    with ExitStack() as stack:
        stack.enter_context(Teller(state, options.log_format).others())
        found, url = choose(state)
        if url:
            stack.enter_context(found.override(url=url))
        for module in (*found.settings.imports, *options.imports):
            import_module(module)
        check_tasks(found)
        return run_owned(serve(found, options, state, place), loop_factory=fast_loop(), goes_on=are_ours)


def check_tasks(app: App) -> None:
    """:raises UsageError: the App has no tasks"""
    if not app._handlers:
        raise click.UsageError("no tasks to run: name an App that has some, as in headrace worker quick:app")


async def _supervise(state: State, options: Options, processes: int, reload: bool) -> int:
    from headrace.cli.process.log_output import Teller
    from headrace.cli.process.renewal import changes, renew_on_change
    from headrace.cli.process.signals import on_signals
    from headrace.cli.process.supervisor import Supervisor
    from headrace.errors import NotSupported

    if sys.platform == "win32":
        flags = "--processes, --reload, --max-jobs and --max-memory"
        raise NotSupported(f"{flags} need a POSIX system: start several workers instead")

    def command(index: int, parent_fd: int) -> list[str]:
        shared = [word for name in ("app", "url") if (said := getattr(state, name)) for word in (f"--{name}", said)]
        shared += [f"--{name}" for name in ("json", "debug") if getattr(state, name)]
        fd = ["--parent-fd", str(parent_fd)]
        return [sys.executable, "-m", "headrace", "worker", *options.flags(index), *shared, *fd]

    def naming(id: UUID, after: UUID | None) -> list[str]:
        return ["--id", str(id), *(["--after", str(after)] if after else [])]

    tell = Teller(state, options.log_format, "headrace.supervisor").say
    supervisor = Supervisor(
        command,
        processes,
        grace=options.grace,
        burst=options.burst,
        naming=naming,
        renewing=(lambda fd: ["--renew-fd", str(fd)]) if options.limits else None,
        tell=tell,
    )
    what = f"{processes} worker process{'' if processes == 1 else 'es'}"

    def stop() -> None:
        tell(f"stopping {what}, at most {options.grace:g} s; once more to stop at once")
        supervisor.stop()

    with ExitStack() as stack:
        signals = stack.enter_context(on_signals(stop, supervisor.hurry))
        if reload:
            watching = asyncio.create_task(renew_on_change(changes(), supervisor.renew, tell))
            stack.callback(watching.cancel)
        tell(f"{what} (supervisor {os.getpid()})")
        code = await supervisor.run()
    return signals.code or code
