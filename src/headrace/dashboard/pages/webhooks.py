"""Webhooks: subscriptions, how their receivers respond, and what was sent to them."""

from __future__ import annotations

from headrace.core.job import Job
from headrace.core.query import Page
from headrace.core.status import Status
from headrace.core.webhooks.subscription import Webhook
from headrace.dashboard.page import Missing, PageRequest, PageView, Shown, audit_of
from headrace.errors import ConfigError, UnknownWebhook

__all__ = ["VIEWS"]

PAGE_DELIVERIES = 50
STATUSES = {"": "all", "failed": "given up", "retrying": "to be sent again", "completed": "delivered"}
"""The filters of deliveries: a status, and its word here."""


async def webhooks(ask: PageRequest) -> Shown:
    """Show all subscriptions, and the newest deliveries to any of them."""
    found = await ask.shared("webhooks", ask.app.webhooks.list)
    data = {"webhooks": found, **await _deliveries(ask, None)}
    return Shown("webhooks.html", "Webhooks", data)


async def webhook(ask: PageRequest) -> Shown:
    """Show one subscription, or the address that jobs name."""
    id = ask.request.path_params["id"]
    try:
        found: Webhook = await ask.shared(("webhook", id), lambda: ask.app.webhooks.get(id))
    except (UnknownWebhook, ConfigError):
        raise Missing(f"webhook {id}") from None
    data = {"webhook": found, "audit": await audit_of(ask, f"webhook:{id}"), **await _deliveries(ask, id)}
    return Shown("webhook.html", f"Webhook {id[:11]}", data)


async def _deliveries(ask: PageRequest, webhook: str | None) -> dict[str, object]:
    status, cursor = ask.given("status"), ask.given("cursor")
    status = status if status in STATUSES else None
    page: Page[Job] = await ask.shared(
        ("deliveries", webhook, status, cursor),
        lambda: ask.app.webhooks.deliveries(
            webhook=webhook, status=status and Status(status), limit=PAGE_DELIVERIES, cursor=cursor
        ),
    )
    return {
        "page": Page(ask.seen(page.items), page.cursor),
        "status": status or "",
        "statuses": list(STATUSES.items()),
        "cursor": cursor,
    }


VIEWS = (
    PageView("/webhooks", "webhooks", webhooks, "webhooks"),
    PageView("/webhooks/{id}", "webhook", webhook, "webhooks"),
)
