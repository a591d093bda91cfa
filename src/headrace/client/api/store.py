"""``app.store``: the store as a whole: whether it replies, migration, pruning, the doctor's checks, verification."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import UUID

import msgspec

from headrace.client.api.alerts import alerts
from headrace.client.api.noun import Noun
from headrace.client.api.workers import workers
from headrace.core.audit import Audited
from headrace.core.defaults import MAX_AUDIT_ENTRIES
from headrace.core.lifecycle.departure import kept_since
from headrace.core.stats.verification import BOOKS, Invariant, Verification
from headrace.core.validation import checked_name, whole
from headrace.core.webhooks.subscription import Credentials
from headrace.engine import MAX_BATCH, Check, Engine, WorkerRow
from headrace.errors import SecretMismatch, Unavailable
from headrace.maintenance import Attendance, services
from headrace.runtime.secrets import STATUS_PAGES, Vault, secret_bytes, setting_of
from headrace.runtime.service import Service
from headrace.runtime.signatures import SETTING as LEASES
from headrace.runtime.writes.webhooks import SECRETS, SUBSCRIPTIONS, read_webhooks

if TYPE_CHECKING:
    from headrace.client.session import Session

__all__ = [
    "SHARED",
    "Maintenance",
    "StoreApi",
    "derived_webhooks",
    "findings",
    "shared_secret",
]


class Maintenance:
    """Sweeps, prunes and plans while its block lasts, unless another process has the duty; any number may stand by.

    If the process dies, others notice it as they notice it of a worker, where the kernel or the server reports it.
    Where not, its duties are leased for a few seconds at a time, so that others go on soon, and nothing is left.
    """

    def __init__(self, session: Session) -> None:
        host, engine = session.host, session.engine
        holder = host.dice.new_id(host.clock.now())
        duties = services(engine, session.writer, host, holder, worker=False)
        # Before the duties, so that it is held by the time it has one.
        self._services: Sequence[Service] = (Attendance(engine, host, holder), *duties)

    @property
    def alive(self) -> bool:
        """Whether all of its loops run; one that has ended by itself has said why in the log."""
        return all(service.alive for service in self._services)

    async def __aenter__(self) -> Self:
        for service in self._services:
            await service.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for service in reversed(self._services):
            await service.end()


READY = "ready"
"""The lease of those that try to write, all under one id: one row that is renewed, however many try."""
_ANYBODY = UUID(int=0)


SHARED = "secret:"
"""What the settings that are such secrets begin with."""
_MAX_TRIES = 20
_MAKE = "HEADRACE_SECRET=$(python -c 'import secrets; print(secrets.token_urlsafe(32))')"


async def shared_secret(vault: Vault, name: str) -> bytes:
    """The secret of this name: derived; or made by the first call, and the same for all from then on;
    :raises SecretMismatch: others derive it, and this process cannot"""
    key = SHARED + checked_name(name, "the name of a secret")
    derives = await vault.derives()
    for _ in range(_MAX_TRIES):
        setting = await setting_of(vault.engine, key)
        if derives:
            if setting is not None:  # from before
                await vault.engine.documents.put_setting(key, None, setting.rev)
            return vault.derived("shared", name)
        if setting is not None:
            return urlsafe_b64decode(msgspec.json.decode(setting.value, type=dict[str, str])["secret"])
        made = msgspec.json.encode({"secret": urlsafe_b64encode(secret_bytes(32)).decode()}).decode()
        await vault.engine.documents.put_setting(key, made, 0)
    raise Unavailable(f"the secret {name!r} could not be stored")


async def derived_webhooks(engine: Engine) -> list[str]:
    """The ids of the webhooks that sign with what is derived."""
    return [id for id, one in (await _credentials(engine)).items() if one.derived]


async def _credentials(engine: Engine) -> dict[str, Credentials]:
    """By the id of the webhook."""
    settings = await engine.documents.settings(SECRETS)
    return {one.key.removeprefix(SECRETS): msgspec.json.decode(one.value, type=Credentials) for one in settings}


async def findings(vault: Vault) -> list[Check]:
    """The doctor's findings about secrets; nothing is taken up for that."""
    engine, root = vault.engine, await vault.stored()
    if not vault.is_set and root is None:
        if not await _signs(engine):
            return [
                Check("secret", "ok", "HEADRACE_SECRET is not set; nothing is signed with a secret of the store yet")
            ]
        message = (
            "HEADRACE_SECRET is not set: what leases, webhooks and status pages are signed with is in the store, and"
            " whoever can read that, or a backup of it, can forge them"
        )
        return [Check("secret", "warn", message, f"set the same for every hub and web application: {_MAKE}")]
    if root is None:
        return [Check("secret", "ok", "HEADRACE_SECRET is set; the first hub takes it up")]
    try:
        await vault.derives()
    except SecretMismatch as error:
        return [Check("secret", "fail" if vault.is_set else "warn", str(error), "see guides/keys.md, The secret")]
    found = [Check("secret", "ok", "what leases and webhooks are signed with is derived from HEADRACE_SECRET")]
    subscribed = {one.id for one in read_webhooks(await engine.documents.settings(SUBSCRIPTIONS))}
    for id, kept in (await _credentials(engine)).items():
        if id in subscribed and any(one.text and not one.given for one in kept.secrets):
            message = f"webhook {id} signs with a secret that is in the store, made before HEADRACE_SECRET was set"
            found.append(Check("secret", "warn", message, f"headrace webhooks rotate {id}, and tell its receiver"))
    return found


async def _signs(engine: Engine) -> bool:
    """Whether anything in the store is signed with."""
    for key in (LEASES, STATUS_PAGES, SHARED, SECRETS):
        if await engine.documents.settings(key):
            return True
    return False


def _workers(rows: Sequence[WorkerRow]) -> list[Check]:
    """How many are alive, unless that is an alert."""
    alive = [row for row in rows if row.alive]
    own = sum(row.info.own for row in alive)
    said = f"{len(alive) - own} alive" + (f", and {own} of headrace's own" if own else "")
    return [Check("workers", "ok", said)] if alive or not any(row.holds for row in rows) else []


class StoreApi(Noun):
    """The store as a whole."""

    async def exists(self) -> bool:
        """Whether there is a store to open; entering the App makes one where there is none. It need not be open."""
        engine = self._app._new_engine()
        with self._app._naming_url_source():
            return await engine.exists()

    async def migrate(self, *, plan: bool = False) -> list[str]:
        """Migrate the schema (``plan``: only list the steps); the App need not be open."""
        engine = self._app._new_engine()
        with self._app._naming_url_source():
            return await engine.migrate(plan=plan)

    async def ping(self, *, write: bool = False) -> None:
        """Read something small from the store, or with ``write`` have it write that;
        :raises EngineError: it does not reply, or takes no write: its disk is full, or its role may only read"""
        now = self._host.clock.now()
        if write:
            await self._engine.documents.lease(READY, _ANYBODY, 1.0, now)
        else:
            await self._engine.documents.holder("duty:sweeper", now)

    async def prune(self) -> int:
        """Remove every ended job that is kept no longer, and records of workers that went before; how many jobs."""
        engine = self._engine
        now, total = self._host.clock.now(), 0
        cutoffs = engine.rules.retention.cutoffs(now)
        while gone := await engine.jobs.delete(cutoffs, MAX_BATCH, now=now):
            total += gone
            if gone < MAX_BATCH:
                break
        before = kept_since(engine.rules.retention, now)
        while await engine.workers.forget_gone(before, MAX_BATCH) >= MAX_BATCH:
            pass
        return total

    async def verify(self, *, each: Callable[[Invariant], object] | None = None) -> Verification:
        """Compare what the store keeps twice, while workers go on; ``each`` is called with every finished check."""
        checks: list[Invariant] = []
        for name in BOOKS:
            # Only this one goes by the time: a hub of the version before does not take it.
            now = self._host.clock.now() if name == "messages" else None
            checks.append(await self._engine.records.verify(name, now))
            if each is not None:
                each(checks[-1])
        return Verification(not any(one.wrong for one in checks), tuple(checks))

    async def doctor(self, *, store: bool = True) -> list[Check]:
        """Check the store, the workers and the settings; each finding has a remedy. All alerts (``app.stats.alerts``)
        are among them. ``store``: also what the store reports about itself, which may take long."""
        engine, now = self._engine, self._host.clock.now()
        clock = self._host.store_clock
        rows = await workers(self._session)
        found = await alerts(self._session, rows)
        return [
            *(await engine.check(now if clock is None else clock.local.now()) if store else ()),
            *_workers(rows),
            *(Check(one.kind.check, one.level, one.message, one.remedy) for one in found),
            *(await findings(self._session.vault) if store else ()),
        ]

    async def audit(self, limit: int = 50) -> list[Audited]:
        """What people and programs did to queues, limits, rates, schedules and keys, newest first. The newest 1,000 are
        kept. What was done to a job is in the history of the job."""
        return await self._engine.documents.audit(whole(limit, "limit", 1, MAX_AUDIT_ENTRIES))
