"""``schedules``: list, show, preview, create, pause, resume, trigger, delete."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.completion import known
from headrace.cli.options import PRIORITY, State, common, duration, in_words, moment
from headrace.cli.options import payload as read_payload
from headrace.cli.options import priority as to_priority
from headrace.cli.output.console import console, document, echo, listing, say
from headrace.cli.output.statuses import record_of
from headrace.cli.session import me, on_app, with_app
from headrace.cli.unknown_names import check_task

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.core.schedule.rules import Continuous, Cron, Every

__all__ = ["schedules"]


@click.group(invoke_without_command=True)
@on_app()
async def schedules(app: App, state: State) -> None:
    """List schedules, or show, create, pause, resume, trigger and delete them, and see their next fires."""
    found = await app.schedules.list()
    empty = "no schedules: give a task one in code (schedule=Cron(…)), or use headrace schedules create"
    listing(state.json, found, empty, lambda views: views.schedules_view(found, app.host.clock.now()))


async def _one(app: App, name: str, state: State, what: str) -> None:
    if state.json:
        document([await app.schedules.get(name)])
    else:
        say(f"schedule {name} {what}")


@schedules.command()
@click.argument("name", shell_complete=known("schedule"))
@click.argument("task", shell_complete=known("task"))
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--cron", metavar="EXPR", help="When to fire, as in '0 2 * * *'.")
@click.option("--every", type=duration, metavar="DURATION", help="Fire at this interval.")
@click.option("--continuous", type=int, metavar="N", help="Run all the time, N instances at once.")
@click.option("--cool-down", type=duration, metavar="DURATION", help="How long --continuous waits after a failure.")
@click.option("--tz", metavar="ZONE", help="The time zone of --cron (default UTC).")
@click.option("--start", type=moment, metavar="TIME", help="No fire before this moment; --every counts from it.")
@click.option("--end", type=moment, metavar="TIME", help="No fire after this moment.")
@click.option("--jitter", type=duration, metavar="DURATION", help="Start each job up to this much later.")
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip", "wait"]),
    help="What a fire does while a job of an earlier one is live: submit, submit nothing, or wait (default allow).",
)
@click.option(
    "--catch-up",
    type=click.Choice(["once", "skip", "all"]),
    help="Which missed fires are made up for (default once: the newest).",
)
@click.option("--cap", type=int, metavar="N", help="How many fires --catch-up all makes up for at most (default 100).")
@click.option("--payload", metavar="JSON|@FILE|-", help="The whole payload; key=value pairs are laid over it.")
@click.option("--queue", metavar="QUEUE", shell_complete=known("queue"), help="The queue of its jobs.")
@click.option("--priority", type=to_priority, metavar=PRIORITY, help="The priority of its jobs.")
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
    """Submit a job of TASK by a rule: --cron, --every or --continuous."""
    body = read_payload(payload, arguments)
    when = _rule(**rule)
    options: dict[str, Any] = {
        key: value for key, value in (("queue", queue), ("priority", priority)) if value is not None
    }

    async def work(app: App) -> None:
        await check_task(app, task)
        draft = await app.draft(task, body, **options)
        replaced = any(one.name == name for one in await app.schedules.list())
        made = await app.schedules.set(name, when, draft, by=me())
        what = f"submits {task}" + (" (it replaces the one of that name)" if replaced else "")
        rests = f", and is still paused: headrace schedules resume {name} lets it fire" if made.paused else ""
        await _one(app, name, state, what + rests)

    with_app(state, work, creates=True)


_KINDS = {"cron": "--cron", "every": "--every", "continuous": "--continuous"}
_BELONGS = {"tz": "cron", "cool_down": "continuous"}


def _rule(**given: Any) -> Cron | Every | Continuous:
    from headrace.core.schedule.rules import Continuous, Cron, Every

    said = {name: value for name, value in given.items() if value is not None}
    kinds = [kind for kind in _KINDS if kind in said]
    if len(kinds) != 1:
        raise click.UsageError("say when: --cron EXPR, --every DURATION or --continuous N, one of them")
    kind, when = kinds[0], said.pop(kinds[0])
    for name in said:
        of = _BELONGS.get(name)
        if of != kind and (of is not None or kind == "continuous"):
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} belongs to {_KINDS[of] if of else 'a rule with fires'}, not to --{kind}")
    if kind == "cron":
        return Cron(when, **said)
    return Every(seconds=when, **said) if kind == "every" else Continuous(when, **said)


@schedules.command()
@click.argument("name", shell_complete=known("schedule"))
@on_app()
async def show(app: App, state: State, name: str) -> None:
    """Show everything about a schedule."""
    found = await app.schedules.get(name)
    if state.json:
        document(found)
    else:
        from headrace.cli.output.store import schedule_view

        console().print(schedule_view(found, app.host.clock.now()))


@schedules.command("next")
@click.argument("name", shell_complete=known("schedule"))
@click.option("-n", "n", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many fires.")
@on_app()
async def next_(app: App, state: State, name: str, n: int) -> None:
    """Show when a schedule fires next, in local time and, if it has another time zone, in that."""
    from headrace.core import times
    from headrace.core.schedule.localtime import zone

    found, fires = await app.schedules.get(name), await app.schedules.preview(name, n)
    tz = getattr(found.rule, "tz", "UTC")
    if state.json:
        document([{"at": at.astimezone(UTC), "local": at.astimezone(zone(tz)).isoformat()} for at in fires])
        return
    if found.state != "active":
        say(f"schedule {name} is {found.state}: it fires at these moments only when it is active")
    for at in fires:
        here, there = times.moment(at, None), times.moment(at, zone(tz))
        echo(here if here == there else f"{here}  ({there} {tz})")


@schedules.command()
@click.argument("name", shell_complete=known("schedule"))
@on_app()
async def pause(app: App, state: State, name: str) -> None:
    """Stop a schedule from firing."""
    await app.schedules.pause(name, by=me())
    await _one(app, name, state, "is paused")


@schedules.command()
@click.argument("name", shell_complete=known("schedule"))
@on_app()
async def resume(app: App, state: State, name: str) -> None:
    """Let a paused schedule fire again."""
    await app.schedules.resume(name, by=me())
    await _one(app, name, state, "is on")


@schedules.command()
@click.argument("name", shell_complete=known("schedule"))
@in_words
@on_app()
async def trigger(app: App, state: State, name: str) -> None:
    """Submit a schedule's job now, and print its id."""
    handle = await app.schedules.trigger(name, by=me())
    document(record_of(handle.last or await handle.refresh())) if state.json else echo(str(handle.id))


@schedules.command()
@click.argument("name", shell_complete=known("schedule"))
@on_app()
async def delete(app: App, state: State, name: str) -> None:
    """Remove a schedule; the jobs it has submitted stay."""
    await app.schedules.delete(name, by=me())
    document({"deleted": name}) if state.json else say(f"schedule {name} deleted")
