"""One worker in this process, from its start to its end in good order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from headrace.cli.exit_codes import DONE, FAILED, code_of
from headrace.cli.options import Address, BadAddress, State, pairs
from headrace.cli.output.words import short
from headrace.cli.process.log_output import Teller
from headrace.cli.process.renewal import renew_when_due
from headrace.cli.process.signals import on_signals
from headrace.cli.session import opened
from headrace.errors import StoreLost

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.cli.commands.worker import Options, Place
    from headrace.worker.worker import Worker

__all__ = ["serve"]


async def serve(app: App, options: Options, state: State, place: Place) -> int:
    """Run a worker until it is done or stopped, or its supervisor is gone."""
    from headrace.engines.connect import redact
    from headrace.worker.process.loops import tune_process
    from headrace.worker.worker import succeed

    teller = Teller(state, options.log_format)
    async with AsyncExitStack() as stack:
        logs = stack.enter_context(teller.logs(options.verbose))
        await stack.enter_async_context(opened(app))
        worker = app.worker(
            concurrency=options.concurrency,
            queues=options.queues or None,
            burst=options.burst,
            grace=options.grace,
            offers=pairs(options.offers),
            tasks=options.tasks or None,
        )
        if place.id is not None:
            succeed(worker, place.id, place.after)

        def tell(event: str, message: str, **facts: Any) -> None:
            teller(event, message, worker=str(worker.id), **facts)

        def stop() -> None:
            busy = worker.stats.busy
            rest = f": {busy} running have {options.grace:g} s; once more to stop at once" if busy else ""
            tell("stopping", f"stopping{rest}")
            worker.request_stop()

        signals = stack.enter_context(on_signals(stop, worker.request_stop))
        if place.parent_fd is not None:
            _on_orphaned(place.parent_fd, worker, teller)
        ports = await stack.enter_async_context(AsyncExitStack())  # closed when another takes this position
        if options.health:
            url = f"http://{_serve_health(ports, app, worker, options.health)}"
            tell("health", f"health and metrics at {url}/healthz and {url}/metrics", url=url)
        tasks = sorted({handler.name for handler in worker.handlers.values()})
        queues = ", ".join(options.queues) or "all queues"
        offers = f", offers {', '.join(options.offers)}" if options.offers else ""
        tell(
            "started",
            f"worker {short(worker.id)} on {redact(app.settings.url)}: {', '.join(tasks)}; {queues}, "
            f"{options.concurrency} at once{offers}",
            tasks=tasks,
        )
        tune_process()
        if options.limits and place.renew_fd is not None:
            renewing = asyncio.create_task(
                renew_when_due(worker, options.limits, place.renew_fd, ports.aclose, lambda why: tell("renewed", why))
            )
            stack.callback(renewing.cancel)
        try:
            await worker.run(signals=False)
        except StoreLost as error:
            if state.debug or not logs.has_logged(error):
                raise
            return code_of(error)
        stats = worker.stats
        counts = {"done": stats.done, "failed": stats.failed, "released": stats.released}
        back = f", {stats.released} handed back" if stats.released else ""
        tell("stopped", f"stopped: {stats.done} done, {stats.failed} failed{back}", **counts)
    # Left because of handlers that cannot be stopped: its supervisor should start another.
    return signals.code or (FAILED if worker.exhausted else DONE)


def _serve_health(stack: AsyncExitStack, app: App, worker: Worker, where: Address) -> Address:
    from headrace.cli.process.health import serving

    try:
        return stack.enter_context(serving(app, worker, where))
    except OSError as error:
        raise BadAddress(f"cannot listen on {where}: {error.strerror or error}; choose another --health") from None


def _on_orphaned(fd: int, worker: Worker, tell: Teller) -> None:
    """Stop in good order when the supervisor's end of the pipe closes: it is gone."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        loop.remove_reader(fd)
        tell.say("the supervisor is gone: stopping")
        worker.request_stop()

    loop.add_reader(fd, readable)
