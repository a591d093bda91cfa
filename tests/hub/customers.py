"""Two customers of one store, each with a bit of everything, for tests that keep them apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headrace import App, Context
from headrace.core.attempt import ErrorInfo
from headrace.core.auth.api_keys import Scope
from headrace.core.job import Job
from headrace.hub import HubOptions
from headrace.testing import FakeClock
from tests.hub.serving import Served, serving
from tests.support.until import until

__all__ = ["ALICE", "BOB", "SECRET", "Customer", "Scene", "scene"]

ALICE, BOB = "alice", "bobsecret"
SECRET = "bobsecret"
"""In everything that is Bob's, and nowhere else."""
OWN: tuple[Scope, ...] = ("read", "submit", "work", "act")
"""All scopes that the key of a customer may have."""


@dataclass
class Customer:
    """What a customer has."""

    name: str
    key: str = ""
    jobs: dict[str, UUID] = field(default_factory=dict)
    """By what is special about each."""
    batch: UUID | None = None
    fingerprint: str = ""
    webhook: str = ""

    @property
    def keys(self) -> str:
        """The dedup, request and concurrency key of its queued job; whoever uses it as well has it in a job's record,
        so it does not tell whose it is."""
        return f"key number {len(self.name)}"

    @property
    def traces(self) -> set[str]:
        """Texts by which one would know that an answer speaks of this customer's."""
        return {self.name, str(self.batch), *map(str, self.jobs.values())} | ({self.webhook} - {""})


@dataclass
class Scene:
    """A hub with two customers."""

    hub: Served
    alice: Customer
    bob: Customer
    operator: str
    """A key that has no customer."""
    worker: UUID | None = None
    """Who has Bob's running job."""

    @property
    def app(self) -> App:
        return self.hub.app

    async def jobs_of_bob(self) -> list[tuple[Any, ...]]:
        """How Bob's jobs stand."""
        found = await self.app.jobs.get_many(list(self.bob.jobs.values()))
        return [_stand(job) for job in found if job is not None]


def _stand(job: Job) -> tuple[Any, ...]:
    return job.id, job.status, job.rev, job.priority, job.queue, job.cancel_requested_at


@asynccontextmanager
async def scene(url: str, *, clock: FakeClock | None = None) -> AsyncIterator[Scene]:
    """Both customers, at a hub with keys; with a ``clock`` nothing of theirs runs."""
    app, held = App(url, clock=clock), asyncio.Event()

    @app.task
    async def quick(note: str = "") -> str:
        return note

    @app.task(max_concurrency=1)
    async def hold(ctx: Context, note: str = "") -> None:
        await quick.submit(note)  # a child
        await ctx.flush()
        await held.wait()

    async with app:
        bob, alice = Customer(BOB), Customer(ALICE)
        made = await app.keys.create("operator", ("read", "submit", "work", "act", "admin"))
        for one in (bob, alice):
            one.key = (await app.keys.create(f"of {one.name}", OWN, customer=one.name)).text
            await _furnish(app, one)
        if clock is not None:
            async with serving(app) as hub:
                yield Scene(hub, alice, bob, made.text)
            return
        # Bob's job has the only permit of the task, and Alice's waits for it: so hers has something to say about his.
        bob.jobs["running"] = (await app.submit("hold", {"note": BOB}, customer=BOB, tags=[BOB])).id
        async with app.worker(tasks=["hold"], grace=0) as worker:
            await until(lambda: _is(app, bob.jobs["running"], "running"))
            await until(lambda: app.jobs.count(parent=bob.jobs["running"]))
            [child] = (await app.jobs.list(parent=bob.jobs["running"])).items
            bob.jobs["child"] = child.id
            alice.jobs["held up"] = (await app.submit("hold", {"note": ALICE}, customer=ALICE)).id
            async with serving(app, HubOptions(submits_per_second=None, webhooks=False)) as hub:
                yield Scene(hub, alice, bob, made.text, worker.id)
            held.set()


async def _is(app: App, id: UUID, status: str) -> bool:
    return (await app.jobs.get(id)).status == status


async def _furnish(app: App, one: Customer) -> None:
    """A job in each status that needs no worker, and a batch."""
    note = {"note": one.name}
    options: dict[str, Any] = {"customer": one.name, "tags": [one.name], "metadata": note}

    async def submit(**more: Any) -> UUID:
        return (await app.submit("quick", note, **options | more)).id

    own = dict.fromkeys(("dedup", "concurrency_key", "request_key"), one.keys)
    one.jobs["queued"] = await submit(queue=f"queue-of-{one.name}", **own)
    one.jobs["scheduled"] = await submit(delay=86_400 * 365)
    one.jobs["waiting"] = await submit(after=[one.jobs["queued"]])
    for status in ("failed", "completed", "cancelled"):
        one.jobs[status] = await submit()
    error = ErrorInfo(f"ErrorOf{one.name.title()}", "it did not work")  # or both would be in one group of failures
    failed = await app.jobs.handle(one.jobs["failed"]).resolve(error=error)
    one.fingerprint = failed.fingerprint or ""
    await app.jobs.handle(one.jobs["completed"]).resolve(result=one.name)
    await app.jobs.handle(one.jobs["cancelled"]).cancel()
    one.jobs["rerun"] = (await app.jobs.handle(one.jobs["failed"]).rerun()).id
    hook = await app.webhooks.add(f"https://hooks.example/{one.name}", customer=one.name, events=["retrying"])
    one.webhook = hook.webhook.id
    async with app.batch() as batch:
        batch.add(await app.draft("quick", note, **options))
    one.batch = batch.id
    [member] = (await app.jobs.list(batch=batch.id)).items
    one.jobs["member"] = member.id
