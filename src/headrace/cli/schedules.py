"""``schedules``: list, create, pause, resume, trigger, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.options import common, duration
from headrace.cli.output import console, document, say
from headrace.cli.pairs import payload as read_payload
from headrace.cli.run import with_app
from headrace.cli.state import State

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.core.schedule import Cron, Every

__all__ = ["schedules"]


@click.group(invoke_without_command=True)
@common
def schedules(state: State) -> None:
    """List schedules, or create, pause, resume, trigger and delete them."""
    if click.get_current_context().invoked_subcommand is None:
        with_app(state, lambda app: _list(app, state))


async def _list(app: App, state: State) -> None:
    found = await app.schedules()
    if state.json:
        document(found)
    elif not found:
        say("no schedules: give a task one in code (schedule=Cron(…)), or use headrace schedules create")
    else:
        from headrace.cli.overview import schedules_view

        console().print(schedules_view(found, app.host.clock.now()))


async def _one(app: App, name: str, state: State, what: str) -> None:
    if state.json:
        document([one for one in await app.schedules() if one.name == name])
    else:
        say(f"schedule {name} {what}")


@schedules.command()
@click.argument("name")
@click.argument("task")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--cron", metavar="EXPR", help="When to fire, as in '0 2 * * *'.")
@click.option("--every", type=duration, metavar="DURATION", help="Fire again and again after this long.")
@click.option("--tz", metavar="ZONE", help="The time zone of --cron (default UTC).")
@click.option("--catch-up", type=click.Choice(["once", "skip", "all"]), help="What to do about missed fires.")
@click.option("--payload", metavar="JSON|@FILE|-", help="The whole payload; key=value pairs are laid over it.")
@click.option("--queue", metavar="QUEUE", help="The queue its jobs stand in.")
@click.option("--priority", type=click.IntRange(0, 100), metavar="0-100", help="The priority of its jobs.")
@common
def create(
    state: State,
    name: str,
    task: str,
    arguments: tuple[str, ...],
    payload: str | None,
    queue: str | None,
    priority: int | None,
    **rule: Any,
) -> None:
    """Submit a job of TASK by a rule: --cron or --every."""
    body = read_payload(payload, arguments)
    when = _rule(**rule)
    options: dict[str, Any] = {
        key: value for key, value in (("queue", queue), ("priority", priority)) if value is not None
    }

    async def work(app: App) -> None:
        draft = await app.draft(task, body, **options)
        replaced = any(one.name == name for one in await app.schedules())
        await app.schedule(name, when, draft)
        await _one(app, name, state, f"submits {task}" + (" (it replaces the one of that name)" if replaced else ""))

    with_app(state, work, creates=True)


def _rule(cron: str | None, every: float | None, tz: str | None, catch_up: str | None) -> Cron | Every:
    from headrace.core.schedule import Cron, Every

    extra: dict[str, Any] = {"catch_up": catch_up} if catch_up else {}
    if cron is not None and every is None:
        return Cron(cron, tz=tz or "UTC", **extra)
    if every is not None and cron is None:
        if tz is not None:
            raise click.UsageError("--tz belongs to --cron: an interval has no time zone")
        return Every(seconds=every, **extra)
    raise click.UsageError("say when: --cron EXPR or --every DURATION, one of the two")


@schedules.command()
@click.argument("name")
@common
def pause(state: State, name: str) -> None:
    """Stop a schedule from firing."""

    async def work(app: App) -> None:
        await app.pause_schedule(name)
        await _one(app, name, state, "is paused")

    with_app(state, work)


@schedules.command()
@click.argument("name")
@common
def resume(state: State, name: str) -> None:
    """Let a paused schedule fire again."""

    async def work(app: App) -> None:
        await app.resume_schedule(name)
        await _one(app, name, state, "is on")

    with_app(state, work)


@schedules.command()
@click.argument("name")
@common
def trigger(state: State, name: str) -> None:
    """Submit a schedule's job now, and print its id."""

    async def work(app: App) -> None:
        handle = await app.trigger_schedule(name)
        document((handle.last or await handle.refresh()).to_dict()) if state.json else click.echo(str(handle.id))

    with_app(state, work)


@schedules.command()
@click.argument("name")
@common
def delete(state: State, name: str) -> None:
    """Remove a schedule; the jobs it has submitted stay."""

    async def work(app: App) -> None:
        await app.delete_schedule(name)
        document({"deleted": name}) if state.json else say(f"schedule {name} deleted")

    with_app(state, work)
