"""``up``: a hub and a worker in one process, for one machine and for development."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.commands.hub import chosen, door_flags, hub_options, prepare, start, under_way
from headrace.cli.exit_codes import DONE, FAILED
from headrace.cli.options import State, common
from headrace.cli.session import opened

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.cli.process.log_output import Teller
    from headrace.hub import HubOptions

__all__ = ["up"]


@click.command()
@click.argument("where", required=False, metavar="[MODULE[:APP]]")
@click.option("--concurrency", "-c", type=click.IntRange(1), default=10, show_default=True, help="Jobs at once.")
@click.option("--verbose", "-v", is_flag=True, help="Say when each job starts and ends, and not only what fails.")
@door_flags
@common
def up(state: State, where: str | None, concurrency: int, verbose: bool, log_format: str | None, **flags: Any) -> int:
    """Serve an App over HTTP and run its tasks, in this process, until stopped.

    For one machine and for development: in production, hubs and workers are processes of their own. The first SIGINT
    or SIGTERM stops both gracefully, the second at once.
    """
    from headrace.cli.commands.worker import check_tasks
    from headrace.cli.process.signals import are_ours
    from headrace.worker.process.loops import fast_loop, run_owned

    options = hub_options(flags)
    with chosen(state, where, log_format) as (app, teller):
        app._load()
        check_tasks(app)
        return run_owned(_run(app, options, teller, concurrency, verbose), loop_factory=fast_loop(), goes_on=are_ours)


async def _run(app: App, options: HubOptions, teller: Teller, concurrency: int, verbose: bool) -> int:
    from msgspec.structs import replace

    from headrace.cli.output.words import short
    from headrace.cli.process.signals import on_signals

    async with AsyncExitStack() as stack:
        stack.enter_context(teller.logs(verbose))
        await stack.enter_async_context(opened(app))
        worker = app.worker(concurrency=concurrency, grace=options.grace)
        server, listener = prepare(app, replace(options, maintenance=False))  # which its worker does
        tasks = sorted({handler.name for handler in worker.handlers.values()})

        def halt() -> None:
            server.stop()
            worker.request_stop()

        def stop() -> None:
            teller("stopping", f"stopping{under_way(server.hub, options.grace, worker.stats.busy)}")
            halt()

        with on_signals(stop, halt) as signals:
            serving = await start(server, listener, teller)
            teller("working", f"worker {short(worker.id)}: {', '.join(tasks)}; {concurrency} at once", tasks=tasks)
            working = asyncio.create_task(worker.run(signals=False))
            server.hub.vitals.loops["worker"] = lambda: not working.done()
            await asyncio.wait({serving, working}, return_when=asyncio.FIRST_COMPLETED)
            if (
                not server.hub.draining.is_set() or server.lost is not None
            ):  # one of them broke down: the other is no good alone
                halt()
            await asyncio.gather(serving, working)
        stats = worker.stats
        back = f", {stats.released} handed back" if stats.released else ""
        counts = {name: getattr(stats, name) for name in ("done", "failed", "released")}
        teller("stopped", f"stopped: {stats.done} done, {stats.failed} failed{back}", **counts)
    return signals.code or (FAILED if worker.exhausted else DONE)
