"""Actions on webhooks and keys: those whose answer may hold a secret, which is shown once."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.core.defaults import MAX_API_KEY_NAMES, MAX_NAME_CHARACTERS
from headrace.dashboard.actions.endpoint import Act, ActionRefused, Done
from headrace.dashboard.page import PageRequest
from headrace.errors import ConfigError, KeyTaken, NotGranted

__all__ = ["ACTS"]

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
Names = Annotated[tuple[Name, ...], Meta(max_length=MAX_API_KEY_NAMES)]


class OfWebhook(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A webhook."""

    id: Name


async def send_test(ask: PageRequest, given: OfWebhook) -> Done:
    """Send a test message."""
    await ask.app.webhooks.test(given.id, by=ask.viewer.name)
    return Done(told="A test message is on its way: it is the newest delivery.")


async def rotate(ask: PageRequest, given: OfWebhook) -> Done:
    """Give a webhook a new secret; the old one signs for another day, too."""
    made = await ask.app.webhooks.rotate(given.id, by=ask.viewer.name)
    return Done(told="The webhook has a new secret.", secret=made.secret)


async def switch_on(ask: PageRequest, given: OfWebhook) -> Done:
    """Let a webhook be notified again."""
    await ask.app.webhooks.set(given.id, on=True, by=ask.viewer.name)
    return Done(told="The webhook is on: it is notified of jobs that are submitted from now on.")


async def switch_off(ask: PageRequest, given: OfWebhook) -> Done:
    """Notify a webhook of nothing more."""
    await ask.app.webhooks.set(given.id, on=False, by=ask.viewer.name)
    return Done(told="The webhook is off.")


class NewKey(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A key as a form sends it."""

    name: Annotated[str, Meta(max_length=MAX_NAME_CHARACTERS)] = ""
    scopes: tuple[Literal["read", "submit", "work", "act", "admin"], ...] = ()
    customer: Name | None = None
    tasks: Names = ()
    queues: Names = ()
    days: Annotated[float, Meta(gt=0, le=3660)] | None = None


async def create_key(ask: PageRequest, given: NewKey) -> Done:
    """Make a key of what the viewer may do."""
    if not given.name:
        raise ActionRefused(400, "Give it a name.", "name")
    if not given.scopes:
        raise ActionRefused(400, "Choose what it may do.", "scopes")
    try:
        made = await ask.app.keys.create(
            given.name,
            given.scopes,
            customer=given.customer,
            tasks=given.tasks or None,
            queues=given.queues or None,
            expires=None if given.days is None else given.days * 86400.0,
            by=ask.viewer.name,
            within=ask.viewer,
        )
    except KeyTaken as error:
        raise ActionRefused(409, str(error), "name") from None
    except (NotGranted, ConfigError) as error:
        raise ActionRefused(403 if isinstance(error, NotGranted) else 400, str(error)) from None
    return Done(told=f"The key {given.name} is made.", secret=made.text)


class OfKey(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A key, by its name."""

    name: Name


async def revoke_key(ask: PageRequest, given: OfKey) -> Done:
    """Have every hub refuse a key."""
    gone = await ask.app.keys.revoke(given.name, by=ask.viewer.name)
    return Done(told=f"The key {gone} is revoked: every hub refuses it.")


ACTS: dict[str, Act] = {
    "webhook.test": Act("act", OfWebhook, send_test),
    "webhook.rotate": Act("act", OfWebhook, rotate),
    "webhook.on": Act("act", OfWebhook, switch_on),
    "webhook.off": Act("act", OfWebhook, switch_off),
    "key.create": Act("admin", NewKey, create_key),
    "key.revoke": Act("admin", OfKey, revoke_key),
}
