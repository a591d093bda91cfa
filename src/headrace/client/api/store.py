"""``app.store``: the store as a whole: whether it replies, migration, pruning, the doctor's checks, verification."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import UUID

import msgspec

from headrace.client.api.limit_settings import undefined_rates
from headrace.client.api.noun import Noun
from headrace.client.api.workers import workers
from headrace.core.audit import Audited
from headrace.core.defaults import MAX_AUDIT_ENTRIES
from headrace.core.explain.explanation import many
from headrace.core.job import Job
from headrace.core.lifecycle.departure import kept_since
from headrace.core.lifecycle.liveness import told_silence
from headrace.core.lifecycle.suspects import REQUIREMENT, in_quarantine
from headrace.core.limits.settings import Limits, limits_of, told_unreadable
from headrace.core.matching.match import meets
from headrace.core.matching.shortfall import distance, lacks, told_lacks
from headrace.core.query import Filter
from headrace.core.stats.verification import BOOKS, Invariant, Verification
from headrace.core.status import ENDED, Status
from headrace.core.times import MAX_CLOCK_ERROR_SECONDS, told_apart
from headrace.core.validation import checked_name, whole
from headrace.core.webhooks.delivery import TASK as DELIVER
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


_START = "start a worker: headrace worker MODULE:APP"
_START_HUB = "start a hub, which delivers webhooks: headrace hub"
_MAX_COUNTED_JOBS = 100
"""Jobs without a worker are counted up to this many."""


def _workers(rows: Sequence[WorkerRow], now: datetime) -> list[Check]:
    alive = [row for row in rows if row.alive]
    abandoned = not alive and any(row.holds for row in rows)
    own = sum(row.info.own for row in alive)
    said = f"{len(alive) - own} alive" + (f", and {own} of headrace's own" if own else "")
    found = [Check("workers", "fail" if abandoned else "ok", said, _START if abandoned else None)]
    for row in rows:
        who = row.info.described
        if row.silent_since is not None:
            message = f"{who} has been {told_silence(row.silent_since, now)}, and holds {many(row.holds, 'job')}"
            remedy = "look why it stopped; the living take back what it holds" if alive else _START
            found.append(Check("workers", "warn", message, remedy))
        if row.beat.state == "blocked":
            message = f"{who} does not let its event loop run"
            found.append(Check("workers", "warn", message, "make blocking handlers plain functions: they get threads"))
        if row.alive and abs(row.beat.clock_apart) > MAX_CLOCK_ERROR_SECONDS:
            message = f"the clock of {who} is {told_apart(row.beat.clock_apart)}"
            found.append(Check("clock", "warn", message, "jobs go by the store's clock; let its machine follow NTP"))
        if row.alive and row.beat.stuck_threads:
            message = f"{who} has {row.beat.stuck_threads} threads that do not stop"
            found.append(Check("workers", "warn", message, "call ctx.check() in long loops of plain functions"))
    return found


async def _unserved(engine: Engine, rows: Sequence[WorkerRow], now: datetime, limits: Limits) -> list[Check]:
    """Findings about jobs that could run now, and about tasks of later jobs, that no worker serves."""
    able, found = [row.info for row in rows if row.takes], list[Check]()
    profiles = (await engine.documents.profiles()).profiles
    run = {one.task for one in profiles if any(info.runs(one.task, one.requires) for info in able)}
    later = list[str]()
    for task in sorted({one.task for one in profiles} - run):
        waiting = Filter(status=frozenset({Status.QUEUED}), task=frozenset({task}))
        page = await engine.records.find(waiting, now, _MAX_COUNTED_JOBS)
        if not page.items:
            later.append(task)
            continue
        jobs = f"{_MAX_COUNTED_JOBS} or more jobs" if page.cursor else many(len(page.items), "job")
        had = [row.silent_since for row in rows if row.silent_since is not None and task in row.info.tasks]
        last = f"; the last worker that had it has been {told_silence(max(had), now)}" if had else ""
        message = f"no living worker has the task {task!r}, and {jobs} of it could run now{last}"
        start = _START_HUB if task == DELIVER else _START
        found.append(Check("tasks", "fail", message, f"{start}; or cancel them: headrace cancel --task {task} --yes"))
    if able and later:
        names = ", ".join(later)
        remedy = "start a worker that has them, or cancel their jobs"
        found.append(Check("tasks", "warn", f"no living worker has these tasks of stored jobs: {names}", remedy))
    for profile in profiles:
        having = [info for info in able if info.runs(profile.task, profile.requires)]
        if not profile.requires or REQUIREMENT in profile.requires or not having:
            continue
        if all(not meets(profile.requires, info.offers) for info in having):
            wanted = Filter(status=frozenset({Status.QUEUED}), task=frozenset({profile.task}))
            page = await engine.records.find(wanted, now, _MAX_COUNTED_JOBS)
            if n := sum(job.requires == profile.requires for job in page.items):
                near = min(having, key=lambda info: (distance(lacks(profile.requires, info.offers)), info.shown))
                needs, offers = told_lacks(lacks(profile.requires, near.offers))
                message = (
                    f"{many(n, 'job')} of {profile.task!r} could run now and {'needs' if n == 1 else 'need'} {needs}"
                )
                message += f"; the nearest worker, {near.shown}, offers {offers}"
                found.append(
                    Check("requirements", "fail", message, "start a worker that offers it: --offer NAME=VALUE")
                )
    for count in await engine.records.count(now, history=False) if able else ():
        served = any(info.queues is None or count.queue in info.queues for info in able)
        if count.status is Status.QUEUED and not served and not limits.queue(count.queue).paused:
            message = f"no living worker serves the queue {count.queue!r}, and {many(count.jobs, 'job')} could run now"
            remedy = _START_HUB if count.own else f"headrace worker MODULE:APP --queues {count.queue}"
            found.append(Check("queues", "fail", message, remedy))
    return found


def quarantine_finding(jobs: Sequence[Job], *, more: bool) -> list[Check]:
    """Return the finding about jobs in quarantine, of these suspects; ``more``: there are others."""
    apart = sum(map(in_quarantine, jobs))
    if not apart:
        return []
    count = f"{apart} or more jobs" if more else many(apart, "job")
    message = f"{count} in quarantine: workers died while they ran, so each worker runs one such job at a time"
    remedy = "headrace jobs --suspect lists them; look in the logs of the dead workers for what killed them"
    return [Check("quarantine", "warn", message, remedy)]


async def _quarantine(engine: Engine, now: datetime) -> list[Check]:
    live = Filter(status=frozenset(Status) - ENDED, suspect=True)
    page = await engine.records.find(live, now, _MAX_COUNTED_JOBS)
    return quarantine_finding(page.items, more=page.cursor is not None)


async def _settings(engine: Engine, limits: Limits) -> list[Check]:
    """Findings about paused queues and tasks, undefined rates, and settings of another version."""
    found = list[Check]()
    for rate, message in (await undefined_rates(engine)).items():
        remedy = f"headrace rates set {rate} LIMIT --per DURATION, or app.rate in code"
        found.append(Check("rates", "warn", message, remedy))
    for webhook in read_webhooks(await engine.documents.settings(SUBSCRIPTIONS)):
        if not webhook.on:
            message = f"webhook {webhook.id} is switched off: {webhook.off_because}"
            remedy = f"mend it, then: headrace webhooks on {webhook.id}; or headrace webhooks delete {webhook.id}"
            found.append(Check("webhooks", "warn", message, remedy))
    for key, why in limits.unreadable.items():
        found.append(Check("settings", "warn", *told_unreadable(key, why)))
    for name, rule in limits.queues.items():
        if rule.paused:
            remedy, by = f"headrace queues resume {name}", f" by {rule.paused_by}" if rule.paused_by else ""
            found.append(Check("queues", "warn", f"queue {name!r} is paused{by}", remedy))
    for name in limits.paused_tasks:
        whose = limits.task(name).paused_by
        remedy, by = f"headrace tasks resume {name}", f" by {whose}" if whose else ""
        found.append(Check("tasks", "warn", f"task {name!r} is paused{by}", remedy))
    return found


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
        """Check the store, the workers and the settings; each finding has a remedy. ``store``: also what the store
        reports about itself, which may take long; without it this may be called often."""
        engine, now = self._engine, self._host.clock.now()
        clock = self._host.store_clock
        rows = await workers(self._session)
        checks = await engine.check(now if clock is None else clock.local.now()) if store else ()
        limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
        return [
            *checks,
            *_workers(rows, now),
            *await _unserved(engine, rows, now, limits),
            *await _quarantine(engine, now),
            *await _settings(engine, limits),
            *(await findings(self._session.vault) if store else ()),
        ]

    async def audit(self, limit: int = 50) -> list[Audited]:
        """What people and programs did to queues, limits, rates, schedules and keys, newest first. The newest 1,000 are
        kept. What was done to a job is in the history of the job."""
        return await self._engine.documents.audit(whole(limit, "limit", 1, MAX_AUDIT_ENTRIES))
