"""Operations on webhooks: subscriptions, deliveries, and redeliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from headrace.core.defaults import MAX_KEY_CHARACTERS, MAX_NAME_CHARACTERS, MAX_NOTE_CHARACTERS
from headrace.core.webhooks.delivery import QUEUE, TASK
from headrace.core.webhooks.subscription import Webhook, checked_wish
from headrace.core.webhooks.target import Occasion
from headrace.core.words import Words
from headrace.http.problems import Problem
from headrace.hub.api.documents import ID, JOB, PATH, JobPage, JobView, job_view, page_view
from headrace.hub.api.filters import SaidStatus, filters_in
from headrace.hub.auth.customers import customer_of, filters_of, job_of
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest, operations_of
from headrace.hub.webhooks.addresses import guard_of

__all__ = ["OPERATIONS", "NewSubscription", "SubscriptionChange", "SubscriptionList", "SubscriptionMade", "WebhookView"]

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
Event = Occasion | Literal["status_change", "completion", "ended"]
"""Events of a webhook; the last three stand for several."""


class WebhookView(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook, without its secrets."""

    id: str
    url: str
    """Without what follows the host, if the key is no admin key."""
    events: tuple[Occasion, ...]
    tasks: tuple[str, ...]
    queues: tuple[str, ...]
    customer: str | None
    description: str | None
    created_at: datetime
    created_by: str | None
    signed: bool
    bearer: bool
    words: Words
    """The words for statuses in its messages."""
    failures: int
    """Deliveries in a row that were given up."""
    on: bool
    off_at: datetime | None
    off_because: str | None


class SubscriptionList(msgspec.Struct, frozen=True):
    """All subscriptions, the oldest first."""

    items: tuple[WebhookView, ...]


class Authentication(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a webhook authenticates headrace."""

    token: str
    type: Literal["bearer_token", "bearer"] = "bearer_token"


class NewSubscription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A subscription to be made."""

    url: str | None = None
    webhook_url: str | None = None
    """The same as ``url``."""
    events: tuple[Event, ...] | None = None
    """Its events; null: every change of status, without progress."""
    tasks: tuple[Name, ...] = ()
    """Only of jobs of these tasks; none: of all."""
    queues: tuple[Name, ...] = ()
    """Only of jobs submitted to these queues; none: to all."""
    customer: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY_CHARACTERS)] | None = None
    """Only of jobs of this customer; a key of a customer makes its own."""
    secret: str | None = None
    """To sign with, ``whsec_…``; null: one is made."""
    bearer: str | None = None
    """A token to be sent."""
    authentication: Authentication | None = None
    """The same as ``bearer``."""
    words: Words = "headrace"
    """The words for statuses in its messages."""
    description: Annotated[str, msgspec.Meta(max_length=MAX_NOTE_CHARACTERS)] | None = None


class SubscriptionMade(msgspec.Struct, frozen=True):
    """A webhook with its new secret, which cannot be had again."""

    webhook: WebhookView
    secret: str


class SubscriptionChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes; omitted or null fields stay as they are."""

    on: bool | None = None
    """Switch it on again, or off."""
    url: str | None = None
    events: tuple[Event, ...] | None = None
    tasks: tuple[Name, ...] | None = None
    queues: tuple[Name, ...] | None = None
    words: Words | None = None
    description: Annotated[str, msgspec.Meta(max_length=MAX_NOTE_CHARACTERS)] | None = None


class Rotation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new secret."""

    keep: Annotated[float, msgspec.Meta(ge=0, le=30 * 86_400)] = 86_400.0
    """Seconds for which messages are signed with the old one, too."""
    secret: str | None = None


class Whose(msgspec.Struct, frozen=True):
    """Which subscriptions are requested."""

    customer: str | None = None


class WhichDeliveries(msgspec.Struct, frozen=True):
    """Which deliveries are requested: to one webhook, or of one job."""

    webhook: str | None = None
    job: str | None = None
    status: tuple[SaidStatus, ...] = ()
    customer: str | None = None
    customer_id: str | None = None
    """The same as ``customer``."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 50
    cursor: str | None = None


# -- access


def _shown(ask: OperationRequest, webhook: Webhook) -> WebhookView:
    caller = ask.caller
    fields = {name: getattr(webhook, name) for name in WebhookView.__struct_fields__}
    if caller.customer is None and not caller.may("admin"):  # an address may be a secret in itself
        parts = urlsplit(webhook.url)
        fields["url"] = f"{parts.scheme}://{parts.netloc}/…"
    return WebhookView(**fields)


def _may_change(ask: OperationRequest) -> None:
    """Check that the caller may change it: customers their own, administrators those for all jobs.

    :raises Problem: 403
    """
    if ask.caller.customer is None and not ask.caller.may("admin"):
        message = "webhooks that are told of everybody's jobs need the scope admin"
        raise Problem(403, "forbidden", "This is not for this key", message)


async def _own(ask: OperationRequest) -> Webhook:
    """Return the webhook in the path; :raises Problem: 404, it is missing, or another customer's"""
    id = ask.path["id"]
    found = next((one for one in await ask.hub.app.webhooks.list() if one.id == id), None)
    if found is None or ask.caller.customer not in (None, found.customer):
        raise Problem(404, "not-found", "There is no such webhook", "no webhook of this id")
    return found


def _checked_url(ask: OperationRequest, url: str) -> str:
    return guard_of(ask.hub.options).check(url)


# -- subscriptions


async def list_webhooks(ask: OperationRequest) -> OperationReply:
    """Return every subscription that the caller may see."""
    query: Whose = ask.query
    customer = filters_of(ask, {"customer": query.customer}).get("customer")
    found = await ask.hub.app.webhooks.list(customer=customer if isinstance(customer, str) else None)
    return OperationReply(SubscriptionList(tuple(_shown(ask, one) for one in found)))


async def add_webhook(ask: OperationRequest) -> OperationReply:
    """Make a subscription."""
    _may_change(ask)
    body: NewSubscription = ask.body
    said = {name: getattr(body, name) for name in ("url", "webhook_url", "events", "secret", "bearer")}
    if body.authentication is not None:
        said["authentication"] = msgspec.to_builtins(body.authentication)
    wish = checked_wish({name: value for name, value in said.items() if value is not None}, "body")
    made = await ask.hub.app.webhooks.add(
        _checked_url(ask, wish.url),
        events=wish.events,
        tasks=body.tasks,
        queues=body.queues,
        customer=customer_of(ask, body.customer),
        secret=wish.secret,
        bearer=wish.bearer,
        words=body.words,
        description=body.description,
        by=ask.caller.name,
        most=ask.hub.options.customer_webhooks,
        rule=guard_of(ask.hub.options).rule,
    )
    return OperationReply(SubscriptionMade(_shown(ask, made.webhook), made.secret), 201, {"Cache-Control": "no-store"})


async def get_webhook(ask: OperationRequest) -> OperationReply:
    """Return one subscription."""
    return OperationReply(_shown(ask, await _own(ask)))


async def set_webhook(ask: OperationRequest) -> OperationReply:
    """Change a subscription."""
    webhook = await _own(ask)
    _may_change(ask)
    fields = msgspec.structs.asdict(ask.body)
    if fields["url"] is not None:
        fields["url"] = _checked_url(ask, fields["url"])
    rule = guard_of(ask.hub.options).rule
    changed = await ask.hub.app.webhooks.set(webhook.id, **fields, by=ask.caller.name, rule=rule)
    return OperationReply(_shown(ask, changed))


async def rotate_webhook(ask: OperationRequest) -> OperationReply:
    """Make a new secret for a subscription."""
    webhook = await _own(ask)
    _may_change(ask)
    body: Rotation = ask.body
    made = await ask.hub.app.webhooks.rotate(webhook.id, keep=body.keep, secret=body.secret, by=ask.caller.name)
    return OperationReply(
        SubscriptionMade(_shown(ask, made.webhook), made.secret), headers={"Cache-Control": "no-store"}
    )


async def test_webhook(ask: OperationRequest) -> OperationReply:
    """Send a test message."""
    webhook = await _own(ask)
    _may_change(ask)
    ask.hub.authenticator.spend(ask.caller)
    await ask.hub.quotas.live(ask.caller, task=TASK)
    handle = await ask.hub.app.webhooks.test(webhook.id, by=ask.caller.name)
    return OperationReply(job_view(await handle.refresh()), 202)


async def delete_webhook(ask: OperationRequest) -> OperationReply:
    """Delete a subscription."""
    webhook = await _own(ask)
    _may_change(ask)
    await ask.hub.app.webhooks.delete(webhook.id, by=ask.caller.name)
    return OperationReply(status=204)


# -- deliveries


async def list_deliveries(ask: OperationRequest) -> OperationReply:
    """Return past and pending deliveries."""
    query: WhichDeliveries = ask.query
    given: Any = filters_in(ask, query)
    page = await ask.hub.app.webhooks.deliveries(
        webhook=query.webhook, job=query.job, limit=query.limit, cursor=query.cursor, **given
    )
    return OperationReply(page_view(page))


async def redeliver(ask: OperationRequest) -> OperationReply:
    """Send a message again."""
    job = await job_of(ask, ask.path["id"])
    if job.ended and job.task == TASK:
        ask.hub.authenticator.spend(ask.caller)
        await ask.hub.quotas.live(ask.caller, task=TASK)
    return OperationReply(job_view(await ask.hub.app.webhooks.redeliver(job.id, by=ask.caller.name)), 202)


_ID = "wh_5f0c9b7a3d1e4f6a8b2c0d9e7f1a3b5c"
_WEBHOOK = {
    "id": _ID,
    "url": "https://client.example.com/job-notifications",
    "events": ["completed", "failed", "cancelled"],
    "tasks": ["resize"],
    "queues": [],
    "customer": None,
    "description": None,
    "created_at": "2026-01-31T08:00:00Z",
    "created_by": "local",
    "signed": True,
    "bearer": False,
    "words": "headrace",
    "failures": 0,
    "on": True,
    "off_at": None,
    "off_because": None,
}
_MADE = {"webhook": _WEBHOOK, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}

_DELIVERY = {
    **JOB,
    "task": TASK,
    "queue": QUEUE,
    "asked_queue": QUEUE,
    "tags": [_ID, ID],
    "payload": {"webhook": _ID, "id": "msg_019a8dce17407d059c8e2f6b8f0e4a11", "message": {"type": "job.completed"}},
    "result": {"status": 204},
}

_webhook = operations_of("/api/webhooks/{id}", {"id": _ID}, WebhookView, _WEBHOOK, bounded="webhook")

OPERATIONS = (
    Operation(
        path="/api/webhooks",
        summary="List the subscriptions, without their secrets",
        scope="read",
        bounded="found",
        do=list_webhooks,
        query=Whose,
        gives={200: SubscriptionList},
        answered={"items": [_WEBHOOK]},
    ),
    Operation(
        method="POST",
        path="/api/webhooks",
        summary="Subscribe: an address is told of jobs that are submitted from now on; its secret is shown this once",
        scope="act",
        bounded="made",
        do=add_webhook,
        body=NewSubscription,
        gives={201: SubscriptionMade},
        example={
            "url": "https://client.example.com/job-notifications",
            "events": ["completion"],
            "tasks": ["resize"],
        },
        answered=_MADE,
    ),
    Operation(
        path="/api/webhooks/deliveries",
        summary="List what was sent, or is to be: jobs, newest first",
        scope="read",
        bounded="found",
        do=list_deliveries,
        query=WhichDeliveries,
        gives={200: JobPage},
        answered={"items": [_DELIVERY], "cursor": None},
    ),
    Operation(
        method="POST",
        path="/api/webhooks/deliveries/{id}/redeliver",
        summary="Send a message once more, under the same webhook-id",
        scope="act",
        bounded="job",
        do=redeliver,
        gives={202: JobView},
        refuses=(404, 409, 410),
        answered=_DELIVERY,
        path_examples=PATH,
    ),
    _webhook("GET", "One subscription, and whether it is switched off, and why", "read", get_webhook),
    _webhook(
        "PATCH",
        "Change a subscription, or switch it on or off",
        "act",
        set_webhook,
        body=SubscriptionChange,
        example={"on": True},
    ),
    _webhook(
        "POST /test",
        "Send a message of type webhook.test; the answer is the delivery",
        "act",
        test_webhook,
        gives={202: JobView},
        answered=_DELIVERY,
    ),
    _webhook(
        "POST /rotate",
        "Give it a new secret; the old one signs beside it for a while",
        "act",
        rotate_webhook,
        body=Rotation,
        gives={200: SubscriptionMade},
        example={"keep": 86400},
        answered=_MADE,
    ),
    _webhook(
        "DELETE", "Remove a subscription and its secrets; what waits to be delivered to it fails", "act", delete_webhook
    ),
)
