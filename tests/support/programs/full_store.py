"""An App and a store that has seen everything: run as a program it fills the SQLite file it is given, and dies."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import warnings
from collections.abc import Awaitable, Callable

from headrace import App, Context, Cron, Every, Rate, Retry, Snooze
from headrace.client.api.webhooks import note_undelivered
from headrace.conformance.lab import Lab
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.schedule.rules import Continuous
from headrace.core.status import Status
from tests.support.until import until

app = App()
app.queue("mail", priority=10, max_concurrency=20)
app.rate("provider", Rate(100, per=60, kind="sliding"))


@app.task(queue="images", max_concurrency=5)
async def resize(ctx: Context, image: str, width: int = 800) -> dict[str, str | int]:
    ctx.progress(50, "halfway")
    return {"image": image, "width": width}


@app.task(queue="mail", rates=["provider"])
async def send_newsletter(ctx: Context, customer: int) -> None:
    logging.getLogger("shop.mail").warning("sent to customer %d", customer)


@app.task(retry=Retry(1, backoff=[0.01], jitter=False))
async def doomed() -> None:
    raise ValueError("there is no 30th of February, whatever the customer's form says about it")


@app.task(retry=Retry(5, backoff=[3600], jitter=False))
async def fetch_prices() -> None:
    raise ConnectionError("the provider dropped the line")


@app.task
async def patient() -> None:
    raise Snooze(3600)


@app.task
async def endless(ctx: Context) -> None:
    ctx.progress(40, "reading chapter 4 of 10")
    await ctx.flush()
    await asyncio.Event().wait()


@app.task
async def album(ctx: Context, photos: int) -> None:
    await resize.map([(f"{number}.png",) for number in range(photos)])


@app.task(schedule=Cron("0 2 * * 1-5", tz="Europe/Berlin"))
async def nightly_report() -> None: ...


@app.task(schedule=Every(minutes=5))
async def refresh_cache() -> None: ...


@app.task(continuous=Continuous(instances=2), queue="never served")
async def poll_inbox() -> None: ...


async def fill(url: str) -> dict[str, str]:
    """Bring jobs into every status; one id of each by its status, and those of a batch and a family."""
    with app.override(url=url):
        async with app:
            async with app.worker(concurrency=1):  # which leaves a record
                pass
            worker = app.worker(concurrency=2, queues=["default", "images", "mail"])
            await worker.__aenter__()
            found = {
                "completed": await resize.submit("cat.png"),
                "failed": await doomed.submit(),
                "retrying": await fetch_prices.submit(),
                "snoozed": await patient.submit(),
                "family": await album.submit(12),
                "talkative": await send_newsletter.options(customer="7").submit(7),
            }
            async with app.batch(on_complete=nightly_report.draft()) as batch:
                batch.add_many([resize.draft("dog.png"), doomed.draft()])
            found["scheduled"] = later = await resize.options(delay=3600).submit("later.png")
            found["waiting"] = await resize.options(after=[later.id]).submit("after.png")
            found["queued"] = await app.submit("nobody_serves_this", {"order": 4711}, queue="mail")
            found["cancelled"] = gone = await resize.options(delay=60, tags=["eu", "beta"]).submit("gone.png")
            await gone.cancel()
            for name in ("completed", "failed", "family", "talkative"):
                await _until(found[name].refresh, "completed", "failed")
            await _until(found["retrying"].refresh, "retrying")
            await _until(found["snoozed"].refresh, "scheduled")
            await batch.wait()
            await until(lambda: _all_ended("resize"))
            # What passes too quickly to be caught is put there by hand: a job being checked, and one that is offered to
            # a worker on another machine.
            lab = Lab(lambda: app.session.engine, app.host, Rules())
            lab.now = app.host.clock.now()
            pending = lab.job("resize", pending=True)
            await app.session.engine.jobs.insert([pending], lab.now)
            other = await lab.worker(host="build-7.internal.example", pid=123456, queues=("images", "mail"))
            assigned = await lab.held(other, "offered", accept=False, queue="mail")
            # Two run, the third is in the worker's hands and waits for room.
            running = [await endless.submit() for _ in range(3)]
            await _until(running[0].refresh, "running")
            await _until(running[2].refresh, "assigned", "accepted")
            await app.schedules.set("monthly", Cron("0 6 1 * *"), resize.draft("calendar.png"))
            await app.queues.pause("images", by="ada on build-7")
            await app.keys.create("nightly import", ["submit"], tasks=["resize"], queues=["images"], expires=60)
            await app.keys.create("shop", ["read", "submit"], customer="customer-123", by="ada on build-7")
            address = "https://hooks.example.com/services/T0/B0/notifications-of-jobs"
            hook, doomed_hook = [
                (await app.webhooks.add(address, events=["completion"], tasks=["resize"])).webhook.id for _ in range(2)
            ]
            delivery = await app.webhooks.test(hook)
            for _ in range(10):
                await note_undelivered(app, hook, "HTTP 503")
            ids = {name: str(handle.id) for name, handle in found.items()}
            ids |= {"webhook": hook, "doomed_webhook": doomed_hook, "delivery": str(delivery.id)}
            ids |= {"running": str(running[0].id), "batch": str(batch.id), "pending": str(pending.id)}
            ids |= {"assigned": str(assigned.id), "worker": str(other)}
            print(*(f"{name}={id}" for name, id in ids.items()), flush=True)  # noqa: T201  # read by the test
            os._exit(0)  # as a machine that loses power: what ran is left running


async def _until(refresh: Callable[[], Awaitable[Job]], *statuses: str) -> None:
    async def there() -> bool:
        return (await refresh()).status in statuses

    await until(there, what=str(statuses))


async def _all_ended(task: str) -> bool:
    live = [Status.QUEUED, Status.ASSIGNED, Status.ACCEPTED, Status.RUNNING]
    return not (await app.jobs.list(task=task, status=live)).items


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # that nobody serves a task is the point
    asyncio.run(fill(sys.argv[1]))
