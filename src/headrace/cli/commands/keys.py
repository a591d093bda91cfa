"""``keys``: list, create, revoke, rotate; and the secret that all of a store is signed with."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from headrace.cli.options import State, duration, words
from headrace.cli.output.console import document, echo, listing, say
from headrace.cli.session import me, on_app
from headrace.core.auth.api_keys import SCOPES, Scope

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from headrace.app import App
    from headrace.cli.output.tables import Fitted
    from headrace.core.auth.api_keys import ApiKey

__all__ = ["keys"]


@click.group(invoke_without_command=True)
@on_app()
async def keys(app: App, state: State) -> None:
    """List the keys of the hub, or create and revoke them."""
    await _list(app, state)


@keys.command("list")
@on_app()
async def list_(app: App, state: State) -> None:
    """List keys: what they may do, when they were last used, when they expire."""
    await _list(app, state)


async def _list(app: App, state: State) -> None:
    found = await app.keys.list()
    empty = "no keys: a hub serves this machine alone until headrace keys create makes one"
    listing(state.json, found, empty, lambda _: _table(found, app.host.clock.now()))


def _table(found: Sequence[ApiKey], now: datetime) -> Fitted:
    from headrace.cli.output.jobs import table
    from headrace.cli.output.tables import Fitted
    from headrace.cli.output.text import Text
    from headrace.cli.output.words import ago
    from headrace.client.api.keys import USE_NOTE_INTERVAL

    made = table("key", "prefix", "created", "by", "used", "expires", "may")
    for key in found:
        expires = Text("never", "dim")
        if key.expires_at is not None:
            over = key.expires_at <= now
            expires = Text("expired" if over else ago(key.expires_at, now), "red" if over else "")
        # Uses are written down by the hour: a smaller number would say more than is known.
        lately = key.used_at is not None and now - key.used_at < USE_NOTE_INTERVAL
        used = "never" if key.used_at is None else "< 1 h ago" if lately else ago(key.used_at, now)
        made.add_row(
            Text(key.name),
            Text(key.prefix, "cyan"),
            ago(key.created_at, now),
            Text(key.created_by or ""),
            used,
            expires,
            Text(_permissions(key)),
        )
    return Fitted(made, ("by", "created"), wrap=True)


def _permissions(key: ApiKey) -> str:
    """Return what it may do, and its bounds."""
    bounds = {"customer": (key.customer,) if key.customer else (), "tasks": key.tasks, "queues": key.queues}
    limits = (f"{what} {', '.join(names)}" for what, names in bounds.items() if names)
    pairs = () if key.profiles is None else (f"{key.profiles} pairs of task and requirements",)
    return " · ".join((", ".join(key.scopes), *limits, *pairs))


@keys.command("create")
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, required=True, metavar="SCOPE,…", help=f"What it may do: {', '.join(SCOPES)}."
)
@click.option("--customer", metavar="CUSTOMER", help="It sees and makes only jobs of this customer.")
@click.option("--tasks", multiple=True, metavar="TASK,…", help="It submits only these tasks.")
@click.option("--queues", multiple=True, metavar="QUEUE,…", help="It submits only to these queues.")
@click.option(
    "--profiles",
    type=int,
    metavar="N",
    help="Its customer may have live jobs of N pairs of task and requirements, in place of 100.",
)
@click.option("--expires", type=duration, metavar="DURATION", help="It is refused after this long, as in 90d.")
@on_app(creates=True)
async def create(
    app: App,
    state: State,
    name: str,
    scopes: tuple[str, ...],
    customer: str | None,
    tasks: tuple[str, ...],
    queues: tuple[str, ...],
    profiles: int | None,
    expires: float | None,
) -> None:
    """Make a key for the hub and print it, once: the store keeps only its digest."""
    made = await app.keys.create(
        name,
        cast("list[Scope]", words(scopes)),
        customer=customer,
        tasks=words(tasks) or None,
        queues=words(queues) or None,
        expires=expires,
        profiles=profiles,
        by=me(),
    )
    if state.json:
        document(made)
        return
    echo(made.text)
    say(f"keep it now: it is not shown again. headrace keys revoke {name} takes it back")


@keys.command("revoke")
@click.argument("name", metavar="NAME|PREFIX")
@on_app()
async def revoke(app: App, state: State, name: str) -> None:
    """Refuse a key from now on, on every hub, and close what it has open."""
    gone = await app.keys.revoke(name, by=me())
    document({"revoked": gone}) if state.json else say(f"key {gone} is revoked: every hub refuses it")


@keys.command("rotate")
@click.option("--forget", is_flag=True, help="What was signed so far is void at once: these workers register anew.")
@on_app()
async def rotate(app: App, state: State, forget: bool) -> None:
    """Sign the leases of workers behind hubs with a new secret."""
    await app.keys.rotate_leases(forget=forget, by=me())
    if state.json:
        document({"rotated": True, "forgot": forget})
    else:
        say("leases are signed with a new secret" + (", and all before are void" if forget else ""))


@keys.command("replace-secret")
@on_app()
async def replace_secret(app: App, state: State) -> None:
    """Take up the HEADRACE_SECRET that is set here in place of the one before; none, if it is not set.

    All leases of workers behind hubs are void at once. Restart every hub with the same secret.
    """
    changed = await app.keys.replace_secret(by=me())
    if state.json:
        document({"replaced": True, "webhooks": changed})
        return
    say(
        "what is signed with is derived from another secret"
        if app.settings.secret
        else "HEADRACE_SECRET is used no more"
    )
    for id in changed:
        say(f"its secret is another one now: headrace webhooks rotate {id}, and tell its receiver")
