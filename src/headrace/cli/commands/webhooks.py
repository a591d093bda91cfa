"""``webhooks``: list, show, add, switch on and off, rotate, delete, test; and what was delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli.completion import known
from headrace.cli.ids import resolve
from headrace.cli.options import State, duration, in_words, statuses, words
from headrace.cli.output.console import console, document, echo, listing, say
from headrace.cli.output.statuses import record_of, statuses_in, word_of
from headrace.cli.session import me, on_app
from headrace.core.webhooks.target import EVENTS, GROUPS
from headrace.core.words import VOCABULARIES, Words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from headrace.app import App
    from headrace.cli.output.text import Text
    from headrace.client.api.webhooks import NewWebhook
    from headrace.core.webhooks.subscription import Webhook

__all__ = ["webhooks"]


@click.group(invoke_without_command=True)
@on_app()
async def webhooks(app: App, state: State) -> None:
    """List webhooks, or add, change, test and delete them; see what was delivered, and deliver it again."""
    await _list(app, state)


@webhooks.command("list")
@on_app()
async def list_(app: App, state: State) -> None:
    """List webhooks: where they lead, what they are told of, and whether they are switched off."""
    await _list(app, state)


async def _list(app: App, state: State) -> None:
    found = await app.webhooks.list()
    empty = "no webhooks: headrace webhooks add URL subscribes an address"
    listing(state.json, found, empty, lambda _: _view(found, app.host.clock.now()))


def _view(found: Sequence[Webhook], now: datetime) -> Text:
    """Return a block for each: its id, its events, its address, and why it is off."""
    from headrace.cli.output.text import Text
    from headrace.cli.output.words import ago

    made = list[Text]()
    for one in found:
        state = ("on", "green") if one.on else ("off", "red")
        made.append(Text.assemble((one.id, "cyan"), "  ", state, (f"  {ago(one.created_at, now)}", "dim")))
        lines = (one.url, _events_of(one), one.description, None if one.on else one.off_because)
        made += [Text(f"  {line}") for line in lines if line]
    return Text("\n", lines=True).join(made)


def _events_of(one: Webhook) -> str:
    """Return its events, and the bounds of its jobs."""
    groups = {events: name for name, events in GROUPS.items() if name != "ended"}
    bounds = {"tasks": one.tasks, "queues": one.queues, "customer": (one.customer,) if one.customer else ()}
    limits = (f"{what} {', '.join(names)}" for what, names in bounds.items() if names)
    return " · ".join((groups.get(one.events) or ", ".join(one.events), *limits))


async def _meant(app: App, name: str) -> str:
    """Return the id that this is, or begins; :raises UnknownWebhook: it is that of none, or of several"""
    ids = [one.id for one in await app.webhooks.list() if one.id.startswith(name)]
    return ids[0] if len(ids) == 1 and len(name) > len("wh_") else name


@webhooks.command()
@click.argument("id", shell_complete=known("webhook"))
@on_app()
async def show(app: App, state: State, id: str) -> None:
    """Show one webhook."""
    one = await app.webhooks.get(await _meant(app, id))
    document(one) if state.json else console().print(_view([one], app.host.clock.now()))


@webhooks.command()
@click.argument("address", metavar="URL")
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="EVENT,…",
    help=f"What it is told of: {', '.join((*EVENTS, 'status_change', 'completion'))} (default status_change).",
)
@click.option(
    "--task",
    "tasks",
    multiple=True,
    metavar="TASK,…",
    shell_complete=known("task"),
    help="Only of jobs of these tasks.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="QUEUE,…",
    shell_complete=known("queue"),
    help="Only of jobs submitted to these queues.",
)
@click.option("--customer", metavar="CUSTOMER", help="Only of jobs of this customer, who sees it.")
@click.option(
    "--bearer",
    metavar="TOKEN",
    envvar="HEADRACE_WEBHOOK_BEARER",
    help="A token that it is shown; better in HEADRACE_WEBHOOK_BEARER, which no list of processes has.",
)
@click.option(
    "--words",
    "vocabulary",
    type=click.Choice(list(VOCABULARIES)),
    default="headrace",
    show_default=True,
    help="The words for statuses in its messages, of this or of another design.",
)
@click.option("--description", metavar="TEXT", help="What it is for.")
@on_app(creates=True)
async def add(
    app: App,
    state: State,
    address: str,
    events: tuple[str, ...],
    tasks: tuple[str, ...],
    queues: tuple[str, ...],
    customer: str | None,
    bearer: str | None,
    vocabulary: Words,
    description: str | None,
) -> None:
    """Tell an address of jobs that are submitted from now on, and print its secret, once."""
    made = await app.webhooks.add(
        address,
        events=words(events) or None,
        tasks=words(tasks),
        queues=words(queues),
        customer=customer,
        bearer=bearer,
        words=vocabulary,
        description=description,
        by=me(),
    )
    _say_secret(state, made, f"webhook {made.webhook.id} is told of jobs from now on")


def _say_secret(state: State, made: NewWebhook, what: str) -> None:
    if state.json:
        document(made)
        return
    echo(made.secret)
    say(f"{what}. Above is the secret that its messages are signed with: keep it now, it is not shown again")


async def _switch(app: App, state: State, id: str, on: bool) -> None:
    one = await app.webhooks.set(await _meant(app, id), on=on, by=me())
    document(one) if state.json else say(f"webhook {one.id} is {'on' if one.on else 'off'}")


@webhooks.command("on")
@click.argument("id", shell_complete=known("webhook"))
@on_app()
async def on_(app: App, state: State, id: str) -> None:
    """Switch a webhook on again. What failed meanwhile: headrace webhooks deliveries, and redeliver."""
    await _switch(app, state, id, True)


@webhooks.command()
@click.argument("id", shell_complete=known("webhook"))
@on_app()
async def off(app: App, state: State, id: str) -> None:
    """Switch a webhook off: it is told of no new job, and what waits to be delivered to it fails."""
    await _switch(app, state, id, False)


@webhooks.command()
@click.argument("id", shell_complete=known("webhook"))
@click.option(
    "--keep",
    type=duration,
    default="1d",
    show_default=True,
    metavar="DURATION",
    help="How long the old one signs, too.",
)
@on_app()
async def rotate(app: App, state: State, id: str, keep: float) -> None:
    """Give a webhook a new secret and print it, once; for a while messages are signed with the old one, too."""
    made = await app.webhooks.rotate(await _meant(app, id), keep=keep, by=me())
    _say_secret(state, made, f"webhook {made.webhook.id} has a new secret")


@webhooks.command()
@click.argument("id", shell_complete=known("webhook"))
@on_app()
async def delete(app: App, state: State, id: str) -> None:
    """Remove a webhook with its secrets; what waits to be delivered to it fails."""
    meant = await _meant(app, id)
    await app.webhooks.delete(meant, by=me())
    document({"deleted": meant}) if state.json else say(f"webhook {meant} is removed")


@webhooks.command()
@click.argument("id", shell_complete=known("webhook"))
@in_words
@on_app()
async def test(app: App, state: State, id: str) -> None:
    """Send a webhook a message of type webhook.test; a hub delivers it."""
    job = await (await app.webhooks.test(await _meant(app, id), by=me())).refresh()
    document(record_of(job)) if state.json else say(f"delivery {job.id} is {word_of(job)}: headrace watch {job.id}")


@webhooks.command()
@click.option("--webhook", metavar="ID", shell_complete=known("webhook"), help="Only what goes to this webhook.")
@click.option("--job", metavar="JOB", shell_complete=known("job"), help="Only what tells of this job.")
@in_words
@statuses("--status", "status", help="Only deliveries in this status.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Deliveries per page.")
@click.option("--cursor", metavar="CURSOR", help="Where to go on; the page before names it.")
@on_app()
async def deliveries(
    app: App,
    state: State,
    webhook: str | None,
    job: str | None,
    status: tuple[str, ...],
    limit: int,
    cursor: str | None,
) -> None:
    """List what was sent to webhooks, or is to be: jobs, newest first."""
    page = await app.webhooks.deliveries(
        webhook=None if webhook is None else await _meant(app, webhook),
        job=None if job is None else await resolve(app, job),
        **statuses_in({"status": status}),
        limit=limit,
        cursor=cursor,
    )
    if state.json:
        document({"items": [record_of(one) for one in page.items], "cursor": page.cursor})
    elif not page.items:
        say("no deliveries")
    else:
        from headrace.cli.output.jobs import job_table

        out = console()
        out.print(job_table(page.items, app.host.clock.now(), out))
        if page.cursor:
            say(f"more: --cursor {page.cursor}")


@webhooks.command()
@click.argument("delivery", metavar="JOB", shell_complete=known("job"))
@in_words
@on_app()
async def redeliver(app: App, state: State, delivery: str) -> None:
    """Send a message once more, now; it has the same webhook-id, so that a receiver knows it."""
    job = await app.webhooks.redeliver(await resolve(app, delivery), by=me())
    document(record_of(job)) if state.json else say(f"delivery {job.id} is {word_of(job)}")
