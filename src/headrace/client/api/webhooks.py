"""``app.webhooks``: subscriptions, their secrets, and their deliveries."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.client.api.filters import Filters
from headrace.client.api.noun import Noun
from headrace.client.handle import JobHandle
from headrace.core import audit
from headrace.core.attempt import Event
from headrace.core.codec.record import Record
from headrace.core.defaults import MAX_CUSTOMER_WEBHOOKS, MAX_WEBHOOKS, WEBHOOK_ADDRESS_RETENTION
from headrace.core.job import Job, as_id
from headrace.core.query import Page
from headrace.core.status import Reason, Status, Verb
from headrace.core.times import Seconds, seconds
from headrace.core.validation import checked_key, checked_note, whole
from headrace.core.webhooks.addresses import PUBLIC, AddressRule
from headrace.core.webhooks.delivery import TASK, delivery
from headrace.core.webhooks.subscription import (
    Credentials,
    KeptSecret,
    Webhook,
    checked_bearer,
    checked_names,
    checked_secret,
    checked_url,
    failed,
    rotated,
    secret_of,
    succeeded,
)
from headrace.core.webhooks.target import GROUPS, checked_events
from headrace.core.words import Words, vocabulary_of
from headrace.engine import Engine, Setting
from headrace.engine.bus import Hint, Topic
from headrace.errors import ConfigError, TransitionRefused, Unavailable, UnknownWebhook
from headrace.runtime.secrets import Vault, secret_bytes, setting_of
from headrace.runtime.writes.webhooks import OF_JOBS, SECRETS, SUBSCRIPTIONS, read_webhooks, warn_refused

if TYPE_CHECKING:
    from headrace.app import App

__all__ = [
    "NewWebhook",
    "WebhooksApi",
    "forget_unused_webhooks",
    "note_delivered",
    "note_undelivered",
    "webhook_credentials",
]

_log = logging.getLogger("headrace.webhooks")


_MAX_TRIES = 20


class NewWebhook(msgspec.Struct, Record, frozen=True, kw_only=True):
    """A subscription that was just made, or has a new secret. The secret is here and nowhere else to be seen."""

    webhook: Webhook
    secret: str

    def __repr__(self) -> str:  # which may be logged
        return f"<NewWebhook {self.webhook.id}>"


class WebhooksApi(Noun):
    """The webhooks of the store, and what is sent to them."""

    async def list(self, *, customer: str | None = None) -> builtins.list[Webhook]:
        """Every subscription, the oldest first; ``customer``: only those of this one."""
        found = read_webhooks(await self._engine.documents.settings(SUBSCRIPTIONS))
        mine = (one for one in found if customer is None or one.customer == customer)
        return sorted(mine, key=lambda one: (one.created_at, one.id))

    async def get(self, id: str) -> Webhook:
        """One webhook: a subscription, or an address that jobs name; :raises UnknownWebhook:"""
        return (await _find(self._engine, id))[1]

    async def add(
        self,
        url: str,
        *,
        events: Sequence[str] | None = None,
        tasks: Sequence[str] = (),
        queues: Sequence[str] = (),
        customer: str | None = None,
        secret: str | None = None,
        bearer: str | None = None,
        words: Words = "headrace",
        description: str | None = None,
        by: str | None = None,
        most: int | None = None,
        rule: AddressRule = PUBLIC,
    ) -> NewWebhook:
        """Notify this address of jobs that are submitted from now on: of all, or of these tasks, queues or customer.

        ``events``: what it is notified of; left out, of every change of status, and not of progress. ``secret``: to
        sign messages with; left out, one is made. It is returned here, and cannot be read later. A submit elsewhere may
        not know of it for 5 seconds. ``words``: those for statuses in its messages. ``most``: how many a customer may
        have; 10 if left out. An address that the ``rule`` of the hubs that deliver refuses is logged as a warning.

        :raises ConfigError: naming what cannot be used
        """
        now, id = self._host.clock.now(), f"wh_{secret_bytes(16).hex()}"
        kept, text = await self._secret(id, secret)
        token = None if bearer is None else checked_bearer(bearer)
        may = MAX_WEBHOOKS if customer is None else MAX_CUSTOMER_WEBHOOKS if most is None else whole(most, "most", 0)
        if (there := sum(one.customer == customer for one in await self.list())) >= may:
            who = "there may be" if customer is None else "a customer may have"
            message = f"{who} {may} webhooks, and there are {there} already"
            raise ConfigError(f"{message}: remove one, or let one be told of more tasks and queues")
        webhook = Webhook(
            id=id,
            url=checked_url(url),
            created_at=now,
            events=GROUPS["status_change"] if events is None else checked_events(events),
            tasks=checked_names(tasks, "tasks"),
            queues=checked_names(queues, "queues"),
            customer=None if customer is None else checked_key(customer, "customer"),
            description=checked_note(description, "description"),
            created_by=checked_note(by, "by"),
            signed=True,
            bearer=token is not None,
            words=vocabulary_of(words).name,
        )
        await self._put(SECRETS + webhook.id, Credentials((kept,), token), 0, None)
        await self._put(SUBSCRIPTIONS + webhook.id, webhook, 0, self._act("add", by))
        warn_refused(webhook, rule)
        return NewWebhook(webhook=webhook, secret=text)

    async def set(
        self,
        id: str,
        *,
        on: bool | None = None,
        url: str | None = None,
        events: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        words: Words | None = None,
        description: str | None = None,
        by: str | None = None,
        rule: AddressRule = PUBLIC,
    ) -> Webhook:
        """Change a subscription, for jobs that are submitted from now on; ``on`` switches it on again, or off. An
        address and words hold at once, also for what waits to be delivered. :raises UnknownWebhook, ConfigError:"""
        changed: dict[str, Any] = {}
        if url is not None:
            changed["url"] = checked_url(url)
        if events is not None:
            changed["events"] = checked_events(events)
        if tasks is not None:
            changed["tasks"] = checked_names(tasks, "tasks")
        if queues is not None:
            changed["queues"] = checked_names(queues, "queues")
        if words is not None:
            changed["words"] = vocabulary_of(words).name
        if description is not None:
            changed["description"] = checked_note(description, "description")
        now = self._host.clock.now()
        if on is True:
            changed |= {"off_at": None, "off_because": None, "failures": 0}
        elif on is False:
            changed |= {"off_at": now, "off_because": f"switched off by {by}" if by else "switched off"}
        webhook = await self._edit(id, lambda one: replace(one, **changed), self._act("set", by))
        if url is not None:
            warn_refused(webhook, rule)
        return webhook

    async def rotate(
        self, id: str, *, keep: Seconds = 86_400.0, secret: str | None = None, by: str | None = None
    ) -> NewWebhook:
        """Give a webhook a new secret; for ``keep`` seconds messages are signed with the old one, too;
        :raises UnknownWebhook, ConfigError:"""
        made, text = await self._secret(id, secret)
        now, wait = self._host.clock.now(), timedelta(seconds=seconds(keep, "keep"))
        await _find(self._engine, id)
        for _ in range(_MAX_TRIES):
            setting = await setting_of(self._engine, SECRETS + id)
            kept = Credentials() if setting is None else msgspec.json.decode(setting.value, type=Credentials)
            new = rotated(kept, made, now, now + wait)
            if await self._put(SECRETS + id, new, 0 if setting is None else setting.rev, None):
                act = self._act("rotate", by)
                return NewWebhook(webhook=await self._edit(id, lambda one: replace(one, signed=True), act), secret=text)
        raise _contended(id)

    async def delete(self, id: str, *, by: str | None = None) -> None:
        """Remove a webhook with its secrets; what waits to be delivered to it fails. :raises UnknownWebhook:"""
        for _ in range(_MAX_TRIES):
            setting, _ = await _find(self._engine, id)
            if await self._put(setting.key, None, setting.rev, self._act("delete", by)):
                break
        else:
            raise _contended(id)
        while (secret := await setting_of(self._engine, SECRETS + id)) is not None:
            await self._put(secret.key, None, secret.rev, None)

    # -- deliveries

    async def deliveries(
        self,
        *,
        webhook: str | None = None,
        job: UUID | str | None = None,
        status: Status | str | Sequence[Status | str] | None = None,
        reason: Reason | str | Sequence[Reason | str] | None = None,
        customer: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Job]:
        """What was sent, or is to be, newest first: to one webhook, or of one job;
        :raises ConfigError: both are named"""
        if webhook is not None and job is not None:
            raise ConfigError("deliveries are listed of a webhook or of a job, not of both")
        tag = webhook if job is None else str(as_id(job))
        filters: Filters = {"task": TASK, "tag": tag, "status": status, "reason": reason, "customer": customer}
        return await self._app.jobs.list(limit=limit, cursor=cursor, **filters)

    async def redeliver(self, id: UUID | str, *, by: str | None = None) -> Job:
        """Send a message once more: one that waits for its next attempt goes out now, one that was given up gets eight
        attempts again, one that was taken is sent again as a new job. It has the same ``webhook-id``.

        :raises JobNotFound: there is no such job
        :raises TransitionRefused: it is no delivery, is being sent, or waits for one before it
        """
        app = self._app
        job = await app.jobs.get(id)
        if job.task != TASK:
            raise TransitionRefused(job, Verb.RERUN, "it is no delivery of a webhook")
        if job.status is Status.COMPLETED:
            return await (await app.jobs.handle(job.id).rerun(by=by)).refresh()
        if job.ended:
            return await app.jobs.handle(job.id).retry(by=by)
        return await app.jobs.handle(job.id).run_now(by=by)

    async def test(self, id: str, *, by: str | None = None) -> JobHandle[Any]:
        """Send a message of type ``webhook.test``, now and also if it is switched off; :raises UnknownWebhook:"""
        webhook, session = (await _find(self._engine, id))[1], self._session
        now = await session.writer.now()
        data = {"webhook": webhook.id, "by": checked_note(by, "by")}
        message = {"type": "webhook.test", "timestamp": now, "data": data}
        answer = await session.writer.inserts.insert(delivery(session.host.new_id(now), webhook.target, message, now))
        return JobHandle(self._app, answer.job.id, last=answer.job)

    # -- writing

    async def _secret(self, id: str, given: str | None) -> tuple[KeptSecret, str]:
        """A new secret of a webhook as it is kept, and as it is shown; :raises SecretMismatch, ConfigError:"""
        if given is not None:
            return KeptSecret(checked_secret(given), given=True), given
        vault = self._session.vault
        if await vault.derives():
            generation = secret_bytes(8).hex()
            return KeptSecret(generation=generation), _derived(vault, id, generation)
        text = secret_of(secret_bytes(32))
        return KeptSecret(text), text

    async def _edit(self, id: str, change: Callable[[Webhook], Webhook], act: Event | None) -> Webhook:
        for _ in range(_MAX_TRIES):
            setting, webhook = await _find(self._engine, id)
            new = change(webhook)
            if (new == webhook and act is None) or await self._put(setting.key, new, setting.rev, act):
                return new
        raise _contended(id)

    async def _put(self, key: str, value: msgspec.Struct | None, rev: int, act: Event | None) -> bool:
        text = None if value is None else msgspec.json.encode(value).decode()
        if await self._engine.documents.put_setting(key, text, rev, act) is None:
            return False
        self._session.writer.inserts.webhooks.forget()
        self._engine.bus.send(Hint(Topic.SETTINGS, (key,)))
        return True

    def _act(self, verb: str, by: str | None) -> Event:
        return audit.act(verb, self._host.clock.now(), by)


async def webhook_credentials(app: App, id: str) -> Credentials:
    """The secrets by which a webhook recognises our messages; for the sender, and never to be shown."""
    setting = await setting_of(app.session.engine, SECRETS + id)
    kept = Credentials() if setting is None else msgspec.json.decode(setting.value, type=Credentials)
    if not kept.derived:
        return kept
    vault = app.session.vault
    await vault.derives()
    return kept.filled(lambda generation: _derived(vault, id, generation))


async def note_delivered(app: App, webhook: Webhook) -> None:
    """Note that a webhook took a message, if it had not taken the one before."""
    if webhook.failures:
        await app.webhooks._edit(webhook.id, succeeded, None)


async def note_undelivered(app: App, id: str, why: str, *, gone: bool = False) -> Webhook:
    """Note that a delivery was given up; after 10 in a row a subscription is switched off, which is logged."""
    now = app.host.clock.now()
    before = await app.webhooks.get(id)
    after = await app.webhooks._edit(id, lambda one: failed(one, now, why, at_once=gone), None)
    if before.on and not after.on:
        _log.warning("webhook %s is switched off: %s", id, after.off_because)
    return after


async def forget_unused_webhooks(app: App) -> int:
    """Remove the addresses that no submit has named for 35 days; how many."""
    now, count = app.host.clock.now(), 0
    for setting in await app.session.engine.documents.settings(OF_JOBS):
        for one in read_webhooks([setting]):
            if one.used_at is not None and now - one.used_at > WEBHOOK_ADDRESS_RETENTION:
                count += await app.webhooks._put(setting.key, None, setting.rev, None)
                if (secret := await setting_of(app.session.engine, SECRETS + one.id)) is not None:
                    await app.webhooks._put(secret.key, None, secret.rev, None)
    return count


def _derived(vault: Vault, id: str, generation: str) -> str:
    return secret_of(vault.derived("webhook", id, generation))


async def _find(engine: Engine, id: str) -> tuple[Setting, Webhook]:
    for prefix in (SUBSCRIPTIONS, OF_JOBS):
        setting = await setting_of(engine, prefix + id)
        if setting is not None and (found := read_webhooks([setting])):
            return setting, found[0]
    raise UnknownWebhook(id)


def _contended(id: str) -> Exception:
    return Unavailable(f"webhook {id} was changed by others all the time: nothing was stored; try again")
