"""The worker that delivers webhooks: a small one, in a hub or beside a worker of yours."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from headrace.client.api.webhooks import forget_unused_webhooks, note_delivered, note_undelivered, webhook_credentials
from headrace.client.api.workers import own_worker
from headrace.core.defaults import WEBHOOK_TIMEOUT_SECONDS
from headrace.core.hidden_errors import hidden_message
from headrace.core.job import Job
from headrace.core.limits.settings import TaskRule
from headrace.core.webhooks.delivery import POLICY, QUEUE, TASK, message_in_words
from headrace.core.webhooks.subscription import Webhook
from headrace.core.words import VOCABULARIES
from headrace.errors import GiveUp, HeadraceError, UnknownWebhook
from headrace.hub.options import HubOptions
from headrace.hub.webhooks.addresses import Forbidden, Guard, Resolve, resolve
from headrace.hub.webhooks.sender import UNKNOWN, Undelivered, headers_of, send
from headrace.worker.execution.context import Context
from headrace.worker.handler import Handler, Policy
from headrace.worker.worker import Worker

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["OFF", "Delivery", "webhook_worker"]

_log = logging.getLogger("headrace.webhooks")

_MAX_OPEN_DELIVERIES, _MAX_RECEIVER_DELIVERIES = 40, 10
"""Messages that a hub sends at once, and maximum of all hubs to one receiver, which bounds the share of a slow one."""
OFF = "the webhook is switched off: switch it on, then redeliver"
"""The ``by`` of the cancellation of deliveries to a webhook that is off."""
_FORGET_SECONDS = 3600.0
"""Seconds between two removals of addresses that no job names any more."""


class Delivery:
    """The task that sends one message to one webhook."""

    def __init__(
        self,
        app: App,
        guard: Guard,
        *,
        patience: float = WEBHOOK_TIMEOUT_SECONDS,
        trust: ssl.SSLContext | None = None,
        hides: bool = False,
    ) -> None:
        """``hides``: customers get no text of errors."""
        self._app, self._guard, self._patience, self._trust, self._hides = app, guard, patience, trust, hides
        self._noting = asyncio.Lock()

    def handler(self) -> Handler:
        """Return it as a handler for a worker."""

        async def deliver(ctx: Context, webhook: str, id: str, message: dict[str, Any]) -> dict[str, int]:
            return {"status": await self._deliver(ctx.job, webhook, id, message)}

        limits = TaskRule(max_per_key=_MAX_RECEIVER_DELIVERIES)
        return Handler(deliver, name=TASK, policy=Policy(queue=QUEUE, retry=POLICY, limits=limits))

    async def _deliver(self, job: Job, id: str, name: str, message: dict[str, Any]) -> int:
        webhook = await self._found(job, id, message)
        try:
            status = await self._send(webhook, name, message)
        except Forbidden as why:
            why_not = str(why)
            await self._note(id, lambda: note_undelivered(self._app, id, why_not))
            raise GiveUp(why_not) from None
        except Undelivered as error:
            gone, why_not = error.status == 410, str(error)
            if gone or job.charged + 1 >= job.max_attempts:
                await self._note(id, lambda: note_undelivered(self._app, id, why_not, gone=gone))
            if gone:
                raise GiveUp("HTTP 410: it is gone") from None
            raise
        await self._note(id, lambda: note_delivered(self._app, webhook))
        return status

    async def _note(self, id: str, noting: Callable[[], Awaitable[object]]) -> None:
        """Store the outcome, which decides nothing: a taken message is not sent again, a refusal has its reason.

        One at a time: many failures at once would contend for the same record.
        """
        try:
            async with self._noting:
                await noting()
        except HeadraceError as error:
            _log.info("it was not noted how webhook %s took a message: %s", id, error)

    async def _found(self, job: Job, id: str, message: dict[str, Any]) -> Webhook:
        """Return the webhook, if a message may be sent to it."""
        try:
            webhook = await self._app.webhooks.get(id)
        except UnknownWebhook:
            raise GiveUp("the webhook was removed") from None
        # A rerun with another payload must not reach another customer's webhook.
        if webhook.customer != job.customer:
            raise GiveUp("the webhook is not of the customer of this delivery")
        if not webhook.on and message.get("type") != "webhook.test":
            await self._withdraw(job)
        return webhook

    async def _withdraw(self, job: Job) -> NoReturn:
        """End a delivery to a webhook that is off: cancelled, not failed, for nothing is broken."""
        await self._app.jobs.handle(job.id).cancel(by=OFF)
        await asyncio.Event().wait()  # until the worker learns of it and stops this
        raise AssertionError("nobody sets it")

    async def _send(self, webhook: Webhook, name: str, message: dict[str, Any]) -> int:
        now, kept = self._app.host.clock.now(), await webhook_credentials(self._app, webhook.id)
        if self._hides and webhook.customer is not None:
            message = hidden_message(message)
        message = message_in_words(message, VOCABULARIES[webhook.words])
        body = msgspec.json.encode(message)
        headers = headers_of(kept, kept.signing(now), name, int(now.timestamp()), body)
        try:
            return await send(self._guard, webhook.url, body, headers, patience=self._patience, trust=self._trust)
        except Forbidden as why:
            if webhook.customer is None or not why.by_name:
                raise
            # Retried, and reported like an unknown name: customers must not find out which private names exist. The
            # guard has logged the reason.
            raise Undelivered(UNKNOWN) from None


@asynccontextmanager
async def webhook_worker(
    app: App,
    options: HubOptions | None = None,
    *,
    resolver: Resolve = resolve,
    trust: ssl.SSLContext | None = None,
) -> AsyncIterator[Worker]:
    """Deliver webhooks with this worker while the block runs; ``app`` is open. ``options``: where they may go.

    ``resolver`` and ``trust``: how names are resolved, and which certificates are trusted; the system's by default.
    """
    chosen = options or HubOptions()
    guard = Guard(chosen.webhook_allow, http=chosen.webhook_http, resolve=resolver)
    app.session.writer.inserts.webhooks.rule = guard.rule  # submits of this process go by it
    worker = own_worker(
        app,
        [Delivery(app, guard, trust=trust, hides=chosen.errors == "hidden").handler()],
        queue=QUEUE,
        concurrency=_MAX_OPEN_DELIVERIES,
    )
    async with worker:
        tidying = asyncio.create_task(_tidy(app), name="headrace-webhooks-tidy")
        try:
            yield worker
        finally:
            tidying.cancel()
            with suppress(asyncio.CancelledError):
                await tidying


async def _tidy(app: App) -> None:
    while True:
        try:
            await forget_unused_webhooks(app)
        except HeadraceError as error:
            _log.info("webhooks that nobody names any more are removed later: %s", error)
        await app.host.sleep(_FORGET_SECONDS)
