"""Webhooks as a session knows them: the subscriptions, and the addresses that submits name for their jobs."""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from headrace.core.defaults import MAX_WEBHOOK_ADDRESSES
from headrace.core.job import Job, Spec
from headrace.core.webhooks.addresses import PUBLIC, AddressRule, Forbidden
from headrace.core.webhooks.delivery import first_told, is_delivery
from headrace.core.webhooks.subscription import Credentials, KeptSecret, Webhook, Wish
from headrace.core.webhooks.target import GROUPS, Target, messages_ahead
from headrace.engine import Engine, Setting
from headrace.errors import ConfigError, StoreLost, Unavailable
from headrace.runtime.host import Host
from headrace.runtime.secrets import kept_secret, setting_of

__all__ = ["CACHE_SECONDS", "OF_JOBS", "SECRETS", "SUBSCRIPTIONS", "Webhooks", "read_webhooks", "warn_refused"]

_log = logging.getLogger("headrace.webhooks")

SUBSCRIPTIONS, OF_JOBS, SECRETS = "webhook:", "webhook-target:", "webhook-secret:"
"""What the keys of settings begin with: of subscriptions, of addresses that jobs name, of what both are shown."""

_SALT = "webhook-salt"

CACHE_SECONDS = 5.0
"""Seconds for which subscriptions are used as they were read: a new one counts everywhere after that."""


_MAX_KNOWN_ADDRESSES, _KNOWN_SECONDS = 10_000, 60.0
"""How many addresses of jobs a session remembers, and for how many seconds: one may be removed elsewhere."""

USE_NOTE_INTERVAL = timedelta(days=1)
"""How exactly it is noted when an address of jobs was last named."""

_MAX_TRIES = 20


def read_webhooks(settings: Sequence[Setting]) -> list[Webhook]:
    """The webhooks in these settings; one that another version wrote, and this one cannot read, is left out."""
    found = list[Webhook]()
    for setting in settings:
        try:
            found.append(msgspec.json.decode(setting.value, type=Webhook))
        except msgspec.MsgspecError:
            continue
    return found


def warn_refused(webhook: Webhook, rule: AddressRule) -> None:
    """Log that nothing will be delivered, as far as the URL shows. It is stored: only hubs know their own options."""
    try:
        rule.test_url(webhook.url)
    except Forbidden as why:
        host = urlsplit(webhook.url).netloc  # the rest may be a secret
        _log.warning("webhook %s to %s gets nothing from a hub without this option: %s", webhook.id, host, why)


class Webhooks:
    """Makes the deliveries of new jobs. While there are no subscriptions, that costs a comparison."""

    def __init__(self, engine: Engine, host: Host) -> None:
        self._engine, self._host = engine, host
        self.rule = PUBLIC
        """Where webhooks may go, as far as this process knows: one that delivers them sets its own."""
        self._subscriptions: tuple[Webhook, ...] = ()
        self._until = -math.inf
        self._looking: asyncio.Future[None] | None = None
        self._known: dict[tuple[str | None, ...], tuple[str, float]] = {}
        self._salt: bytes | None = None
        self._naming: set[str | None] = set()
        """Customers with jobs that name webhooks of their own; read now and then, as ``_naming_until`` says."""
        self._naming_until = -math.inf

    @property
    def fresh(self) -> bool:
        """Whether the subscriptions are known, as of a few seconds ago."""
        return self._host.clock.monotonic() < self._until

    @property
    def silent(self) -> bool:
        """Whether it is known that there are no subscriptions."""
        return not self._subscriptions and self._host.clock.monotonic() < self._until

    def forget(self) -> None:
        """Read again before the next submit."""
        self._until = -math.inf
        self._known.clear()

    async def look(self) -> None:
        """Read the subscriptions, once for all callers meanwhile; a store that is away counts as unchanged;
        :raises Unavailable: they were never read"""
        if self._looking is not None:
            return await asyncio.shield(self._looking)
        self._looking = looking = asyncio.ensure_future(self._look())
        looking.add_done_callback(self._looked)
        return await asyncio.shield(looking)

    def _looked(self, looking: asyncio.Future[None]) -> None:
        self._looking = None
        if not looking.cancelled():
            looking.exception()  # every waiting caller got it

    async def _look(self) -> None:
        try:
            settings = await self._engine.documents.settings(SUBSCRIPTIONS)
        except StoreLost:
            raise
        except Unavailable:
            if self._until == -math.inf:
                raise
        else:
            self._subscriptions = tuple(one for one in read_webhooks(settings) if one.on)
        self._until = self._host.clock.monotonic() + CACHE_SECONDS

    async def messages_of(self, customer: str, task: str, queue: str, targets: Sequence[Target] = ()) -> int:
        """How many messages to webhooks of this customer are foreseen of a new job of it; ``targets``: the webhooks
        that it names, or had before."""
        if not self.fresh:
            await self.look()
        known = {one.id for one in self._subscriptions}
        wanted = [
            one.events
            for one in self._subscriptions
            if one.customer == customer
            and (not one.tasks or task in one.tasks)
            and (not one.queues or queue in one.queues)
        ]
        wanted += (one.events for one in targets if one.customer == customer and one.id not in known)
        return sum(messages_ahead(events, new=True) for events in wanted)

    async def expected_messages(self, customer: str, *, new: bool = False) -> list[tuple[tuple[str, ...], int]]:
        """The webhooks that may get messages of the live jobs of this customer: of which tasks (none: of all), and how
        many messages of each such job are foreseen; ``new``: of one that is.

        It is an upper bound: whether a job was submitted before its webhook was there, or to which queue, is not
        checked (jobs are moved), and where some jobs name a webhook, all are taken to.
        """
        if not self.fresh:
            await self.look()
        if self._host.clock.monotonic() >= self._naming_until:
            kept = read_webhooks(await self._engine.documents.settings(OF_JOBS))
            self._naming = {one.customer for one in kept}
            self._naming_until = self._host.clock.monotonic() + _KNOWN_SECONDS
        found = [
            (one.tasks, messages_ahead(one.events, new=new)) for one in self._subscriptions if one.customer == customer
        ]
        if customer in self._naming:
            found.append(((), messages_ahead(GROUPS["status_change"], new=new)))
        return found

    # -- what is stored with a new job

    def with_deliveries(self, job: Job) -> tuple[Job, tuple[Job, ...]]:
        """A new job with its webhooks, and the deliveries that are stored with it."""
        spec = job.spec
        if is_delivery(spec):
            return (job if spec.webhook is None else replace(job, spec=replace(spec, webhook=None))), ()
        if self._subscriptions and (targets := self._targets(spec)) != spec.webhook:
            job = replace(job, spec=replace(spec, webhook=targets))
        return (job, ()) if job.spec.webhook is None or job.told is not None else first_told(job)

    def _targets(self, spec: Spec) -> tuple[Target, ...] | None:
        """What the submit names, and the subscriptions as they are now: a rerun has them as they were for its job."""
        known = {one.id for one in self._subscriptions}
        named = (one for one in spec.webhook or () if one.id not in known)
        return (*named, *(one.target for one in self._subscriptions if one.wants(spec))) or None

    async def wished(self, job: Job, wish: Wish | None) -> Job:
        """A new job that refers to the webhook that its submit names, after the address is stored;
        :raises ConfigError: there are too many"""
        if wish is None or is_delivery(job.spec):
            return job
        target = Target(await self._kept(wish, job.spec.customer), wish.events, job.spec.customer)
        return replace(job, spec=replace(job.spec, webhook=(target,)))

    async def _kept(self, wish: Wish, customer: str | None) -> str:
        """The id of the address, which is stored."""
        now, key = self._host.clock.monotonic(), _identity(wish, customer)
        known = self._known.get(key)
        if known is not None and now < known[1]:
            return known[0]
        # With a key that only the store has: else a reader of the id could try tokens until one fits.
        text = msgspec.json.encode(key)
        id = f"wh_{hmac.new(await self._salted(), text, sha256).hexdigest()[:32]}"
        await self._keep(id, wish, customer)
        self._naming.add(customer)
        if len(self._known) >= _MAX_KNOWN_ADDRESSES:
            self._known.clear()
        self._known[key] = (id, now + _KNOWN_SECONDS)
        return id

    async def _salted(self) -> bytes:
        if self._salt is None:
            self._salt = await kept_secret(self._engine, _SALT)
        return self._salt

    async def _keep(self, id: str, wish: Wish, customer: str | None) -> None:
        documents, now = self._engine.documents, self._host.clock.now()
        for _ in range(_MAX_TRIES):
            setting = await setting_of(self._engine, OF_JOBS + id)
            known = next(iter(read_webhooks([] if setting is None else [setting])), None)
            if known is not None and known.used_at is not None and now - known.used_at < USE_NOTE_INTERVAL:
                return
            if known is None:
                await self._count(customer)
                secrets = () if wish.secret is None else (KeptSecret(wish.secret, given=True),)
                if secrets or wish.bearer is not None:
                    text = msgspec.json.encode(Credentials(secrets, wish.bearer)).decode()
                    before = await setting_of(self._engine, SECRETS + id)
                    await documents.put_setting(SECRETS + id, text, 0 if before is None else before.rev)
                known = Webhook(
                    id=id,
                    url=wish.url,
                    created_at=now,
                    customer=customer,
                    signed=wish.secret is not None,
                    bearer=wish.bearer is not None,
                    words=wish.words,
                    of_jobs=True,
                )
                warn_refused(known, self.rule)
            text = msgspec.json.encode(replace(known, used_at=now)).decode()
            if await documents.put_setting(OF_JOBS + id, text, 0 if setting is None else setting.rev) is not None:
                return
        raise Unavailable(f"webhook {id} was changed by others all the time: nothing was stored; try again")

    async def _count(self, customer: str | None) -> None:
        kept = read_webhooks(await self._engine.documents.settings(OF_JOBS))
        if sum(one.customer == customer for one in kept) >= MAX_WEBHOOK_ADDRESSES:
            raise ConfigError(
                f"webhook: jobs have named {MAX_WEBHOOK_ADDRESSES} different addresses already: use the same one for"
                " many jobs, the message says which job it is about; or subscribe once, with app.webhooks.add"
            )


def _identity(wish: Wish, customer: str | None) -> tuple[str | None, ...]:
    """What makes an address another one; words count only if they are not ours, so that known addresses stay known."""
    words = () if wish.words == "headrace" else (wish.words,)
    return (customer, wish.url, wish.bearer, wish.secret, *words)
