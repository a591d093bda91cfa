"""``queues``: list, pause, resume, set, reset, forget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.completion import known
from headrace.cli.options import State, common, in_words
from headrace.cli.output.console import document, listing, say
from headrace.cli.session import me, on_app, with_app
from headrace.cli.unknown_names import REWRITTEN, note_strange, note_undefined, note_unreadable

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["queues"]


@click.group(invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=1000, show_default=True, help="Queues per page.")
@click.option("--cursor", metavar="CURSOR", help="Where to go on; the page before names it.")
@in_words
@on_app()
async def queues(app: App, state: State, limit: int, cursor: str | None) -> None:
    """List queues, or pause, resume, set, reset and forget them."""
    from headrace.client.api.queues import page_of_queues

    page = page_of_queues(await app.queues.list(), limit, cursor)
    empty = "no more queues" if cursor else "no queues yet: the first job of a queue makes it"
    listing(state.json, page.items, empty, lambda views: views.queues_view(page.items, app.host.clock.now()))
    if page.cursor:
        say(f"more: --cursor {page.cursor}")
    await note_unreadable(app, "queue:")


async def _one(app: App, name: str, state: State, what: str) -> None:
    if state.json:
        document([queue for queue in await app.queues.list() if queue.name == name])
    else:
        say(f"queue {name} {what}")


@queues.command()
@click.argument("name", shell_complete=known("queue"))
@click.option("--by", help="Who pauses it, for explain to tell; you on this machine, if left out.")
@on_app(creates=True)
async def pause(app: App, state: State, name: str, by: str | None) -> None:
    """Pause the queue: none of its jobs are started, running ones go on."""
    await app.queues.pause(name, by=by or me())
    await _one(app, name, state, "is paused: headrace queues resume opens it again")
    await note_strange(app, "queue", name)


@queues.command()
@click.argument("name", shell_complete=known("queue"))
@on_app(creates=True)
async def resume(app: App, state: State, name: str) -> None:
    """Resume a paused queue."""
    await app.queues.resume(name, by=me())
    await _one(app, name, state, "is open")
    await note_strange(app, "queue", name)


@queues.command("set")
@click.argument("name", shell_complete=known("queue"))
@click.option("--priority", type=int, help="A queue with a higher number is served first (default 0).")
@click.option("--max-concurrency", type=int, help="Concurrency limit across all workers.")
@click.option(
    "--rate",
    "rates",
    multiple=True,
    shell_complete=known("rate"),
    help="The name of a rate limit; may be given several times.",
)
@click.option(
    "--by-customer/--not-by-customer",
    default=None,
    help="Keep the jobs of each customer in lines of their own, so that workers can choose whose they take.",
)
@common
def set_(
    state: State,
    name: str,
    priority: int | None,
    max_concurrency: int | None,
    rates: tuple[str, ...],
    by_customer: bool | None,
) -> None:
    """Change the settings of a queue; this overrides the code until reset."""
    if priority is None and max_concurrency is None and not rates and by_customer is None:
        raise click.UsageError("nothing to set: give --priority, --max-concurrency, --rate or --by-customer")

    async def work(app: App) -> None:
        limits: dict[str, Any] = {"priority": priority, "max_concurrency": max_concurrency, "rates": rates or None}
        await app.queues.set(name, **limits, by_customer=by_customer, by=me())
        said = [f"priority {priority}"] if priority is not None else []
        said += [f"at most {max_concurrency} at once"] if max_concurrency is not None else []
        said += [f"the rates {', '.join(rates)}"] if rates else []
        said += [f"{'lines' if by_customer else 'no lines'} by customer"] if by_customer is not None else []
        await _one(app, name, state, f"has {', '.join(said)}")
        await note_strange(app, "queue", name)
        await note_undefined(app, rates)

    with_app(state, work, creates=True)


@queues.command()
@click.argument("name", shell_complete=known("queue"))
@on_app(creates=True)
async def reset(app: App, state: State, name: str) -> None:
    """Drop what was set while running, a pause included; the code applies again."""
    await app.queues.reset(name, by=me())
    await _one(app, name, state, "is as the code says")
    await note_strange(app, "queue", name, undo=False)


@queues.command()
@click.argument("name", shell_complete=known("queue"))
@on_app()
async def forget(app: App, state: State, name: str) -> None:
    """Delete all stored settings of the queue, those from code and a pause included; its jobs stay."""
    await app.queues.forget(name, by=me())
    document({"forgotten": name}) if state.json else say(f"queue {name} has no stored settings any more; {REWRITTEN}")
