"""``limits`` and ``rates``: list, set, reset, forget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from headrace.cli.completion import known
from headrace.cli.options import State, common, duration
from headrace.cli.output.console import document, listing, say
from headrace.cli.session import me, on_app, with_app
from headrace.cli.unknown_names import REWRITTEN, note_strange, note_undefined, note_unreadable
from headrace.core.limits.rate import Rate

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["limits", "rates"]

Kind = Literal["fixed", "sliding", "bucket"]


@click.group(invoke_without_command=True)
@on_app()
async def limits(app: App, state: State) -> None:
    """List the limits of tasks, or set, reset and forget them."""
    await _limits(app, state)


async def _limits(app: App, state: State, task: str | None = None) -> None:
    found = [one for one in await app.limits.list() if task in (None, one.task)]
    listing(state.json, found, "no task is limited", lambda views: views.limits_view(found))
    await note_unreadable(app, "limit:")


@limits.command("set")
@click.argument("task", shell_complete=known("task"))
@click.option("--max-concurrency", type=int, help="Concurrency limit across all workers.")
@click.option("--max-per-key", type=int, help="Concurrency limit of each concurrency key.")
@click.option(
    "--rate",
    "names",
    multiple=True,
    shell_complete=known("rate"),
    help="The name of a rate limit; may be given several times.",
)
@common
def set_limit(
    state: State, task: str, max_concurrency: int | None, max_per_key: int | None, names: tuple[str, ...]
) -> None:
    """Change the limits of a task; this overrides the code until reset."""
    if max_concurrency is None and max_per_key is None and not names:
        raise click.UsageError("nothing to set: give --max-concurrency, --max-per-key or --rate")

    async def work(app: App) -> None:
        await app.limits.set(
            task, max_concurrency=max_concurrency, max_per_key=max_per_key, rates=names or None, by=me()
        )
        await _limits(app, state, task)
        await note_strange(app, "task", task)
        await note_undefined(app, names)

    with_app(state, work, creates=True)


@limits.command("reset")
@click.argument("task", shell_complete=known("task"))
@on_app()
async def reset_limit(app: App, state: State, task: str) -> None:
    """Drop what was set while running; the code applies again."""
    await app.limits.reset(task, by=me())
    await _limits(app, state, task)
    await note_strange(app, "task", task, undo=False)


@limits.command("forget")
@click.argument("task", shell_complete=known("task"))
@on_app()
async def forget_limit(app: App, state: State, task: str) -> None:
    """Delete all stored limits of a task, those from code included; its jobs stay."""
    await app.limits.forget(task, by=me())
    document({"forgotten": task}) if state.json else say(f"task {task} has no limits any more; {REWRITTEN}")


@click.group(invoke_without_command=True)
@on_app()
async def rates(app: App, state: State) -> None:
    """List rates, or set, reset and forget them."""
    await _rates(app, state)


async def _rates(app: App, state: State, name: str | None = None) -> None:
    found = {one: rate for one, rate in (await app.rates.list()).items() if name in (None, one)}
    empty = "no rates: app.rate in code, or headrace rates set, makes one"
    listing(state.json, found, empty, lambda views: views.rates_view(found))
    await note_unreadable(app, "rate:")


@rates.command("set")
@click.argument("name", shell_complete=known("rate"))
@click.argument("limit", type=int)
@click.option(
    "--per",
    type=duration,
    metavar="DURATION",
    help="The span in which at most LIMIT jobs may start; a new rate needs it.",
)
@click.option("--kind", type=click.Choice(["fixed", "sliding", "bucket"]), help="How time is counted (default: fixed).")
@click.option("--keyed/--not-keyed", default=None, help="Whether each concurrency key has a rate of its own.")
@on_app(creates=True)
async def set_rate(
    app: App, state: State, name: str, limit: int, per: float | None, kind: Kind | None, keyed: bool | None
) -> None:
    """Make or change a rate limit; this overrides the code until reset. An option left out stays as it is."""
    old = (await app.rates.list()).get(name)
    span = per if old is None or per is not None else old.per
    if span is None:
        raise click.UsageError(f"there is no rate {name!r} yet: give --per")
    of_kind = kind or ("fixed" if old is None else old.kind)
    by_key = keyed if keyed is not None else old is not None and old.keyed
    await app.rates.set(name, Rate(limit, per=span, kind=of_kind, keyed=by_key), by=me())
    await _rates(app, state, name)
    await note_strange(app, "rate", name)


@rates.command("reset")
@click.argument("name", shell_complete=known("rate"))
@on_app()
async def reset_rate(app: App, state: State, name: str) -> None:
    """Drop what was set while running; the code applies again."""
    await app.rates.reset(name, by=me())
    await _rates(app, state, name)
    await note_strange(app, "rate", name, undo=False)


@rates.command("forget")
@click.argument("name", shell_complete=known("rate"))
@on_app()
async def forget_rate(app: App, state: State, name: str) -> None:
    """Delete a stored rate, one from code included; tasks and queues that name it are not limited by it any more."""
    await app.rates.forget(name, by=me())
    document({"forgotten": name}) if state.json else say(f"rate {name} is deleted; {REWRITTEN}")
    await note_undefined(app, [name])
