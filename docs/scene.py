"""A store worth looking at: for the pictures of the dashboard, and for whoever works on its pages.

``python docs/scene.py`` serves it at http://127.0.0.1:8471 until it is stopped.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from headrace import App, Context, Cron, Every, GiveUp, Retry
from headrace.client.submission.by_name import draft_with_warnings
from headrace.core.limits.rate import Rate
from headrace.core.stats.depth import depth_rows
from headrace.core.stats.histogram import Histogram
from headrace.core.stats.rollup import Rollup, Step, Totals, begin_of
from headrace.engine import Beat, WorkerInfo
from headrace.runtime.host import Host

__all__ = ["acted_out", "scene", "served"]

CITIES = ("Oslo", "Lima", "Kyoto", "Turin", "Accra", "Quito")


class Mill(Host):
    """A machine with a name that is nobody's."""

    @property
    def name(self) -> str:
        """Its name."""
        return "mill-1"

    @property
    def pid(self) -> int:
        """A process on it."""
        return 4242


def scene(url: str) -> App:  # noqa: C901  # a branch for each thing that can happen to a job
    """An App of a shop, with tasks of all kinds."""
    app = App(url)
    log = logging.getLogger("shop")
    log.setLevel(logging.INFO)
    app.queue("mail", priority=10, max_concurrency=20)
    app.rate("stripe", Rate(100, per=60, kind="sliding"))

    @app.task(queue="images", timeout=120)
    async def resize_image(
        ctx: Context, image: str, width: int = 800, formats: list[str] | None = None
    ) -> dict[str, Any]:
        for step in range(1, 21):
            ctx.progress(step * 5, f"{image}: row {step * 60} of 1200")
            await asyncio.sleep(0.02)
        return {"image": image, "width": width, "bytes": 48_211}

    @app.task(queue="video", timeout=3600)
    async def transcode(ctx: Context, film: str, seconds: float = 30.0) -> str:
        log.info("ffmpeg -i %s -c:v libx264", film)
        for step in range(1000):
            ctx.progress(min(99.0, 12 + step / 4), f"frame {step * 24:,} of 96,000", step="pass 1 of 2")
            await asyncio.sleep(seconds / 1000)
        return film

    @app.task(queue="mail", retry=Retry(3, backoff=[0.2, 0.3, 0.4], jitter=False))
    async def send_mail(ctx: Context, to: str, template: str = "welcome") -> str:
        log.info("rendering %s for %s", template, to)
        await asyncio.sleep(0.05)
        if template == "broken":
            raise ConnectionRefusedError("smtp.example.com:587 refused the connection")
        if template == "shaky" and ctx.attempt < 3:
            log.warning("the server hung up, attempt %d", ctx.attempt)
            raise TimeoutError("no answer within 10 s")
        return "250 OK"

    @app.task(
        queue="payments", concurrency_key="customer:{customer_id}", max_per_key=1, max_concurrency=4, rates=["stripe"]
    )
    async def charge_card(ctx: Context, customer_id: int, cents: int, currency: str = "EUR") -> dict[str, Any]:
        receipt = await ctx.step("charge", pay, customer_id, cents)
        await ctx.step("receipt", pay, customer_id, 0)
        if cents > 90_000:
            raise GiveUp(f"card of customer {customer_id} was declined: limit exceeded")
        await asyncio.sleep(0.05 if cents != 77 else 600)
        return {"receipt": receipt, "cents": cents, "currency": currency}

    @app.task
    async def build_report(ctx: Context, year: int, cities: list[str]) -> dict[str, int]:
        log.info("gathering %d cities for %d", len(cities), year)
        jobs = [await sales_of.submit(city, year) for city in cities]
        return {city: await job.result(timeout=30) for city, job in zip(cities, jobs, strict=True)}

    @app.task
    async def sales_of(city: str, year: int) -> int:
        log.info("reading ledger of %s", city)
        await asyncio.sleep(0.1)
        return len(city) * year

    @app.task(queue="imports")
    async def import_rows(path: str) -> AsyncIterator[dict[str, Any]]:
        for row in range(8):
            await asyncio.sleep(0.01)
            yield {"row": row, "city": CITIES[row % 6], "orders": row * 17}

    @app.task(schedule=Cron("0 2 * * *", tz="Europe/Berlin"))
    async def nightly_backup() -> str:
        return "ok"

    @app.task(schedule=Every(minutes=5))
    async def refresh_rates() -> str:
        return "ok"

    return app


async def pay(customer_id: int, cents: int) -> str:
    return f"rcpt_{customer_id:05}_{cents}"


async def acted_out(app: App) -> None:
    """Let it all happen: what is stored when this returns has every status. A worker must run."""
    tasks, chance = app.tasks, random.Random(7)
    mail, charge, resize = tasks["send_mail"], tasks["charge_card"], tasks["resize_image"]
    await mail.options(tags=["newsletter"]).map([(f"user{n}@example.com",) for n in range(120)])
    broken = await mail.options(customer="acme").map([(f"user{n}@example.com", "broken") for n in range(14)])
    shaky = await mail.submit("ada@example.com", "shaky")
    charges = await charge.options(tags=["invoice"]).map(
        [(n % 9, chance.choice([500, 1900, 95_000])) for n in range(30)]
    )
    images = await resize.options(customer="globex").map([(f"photo-{n:03}.jpg", 320) for n in range(24)])
    report = await tasks["build_report"].submit(2026, list(CITIES))
    rows = await tasks["import_rows"].submit("orders-2026-11.csv")
    async with app.batch(on_complete=mail.draft("ops@example.com", "batch-done")) as batch:
        batch.add_many(resize.draft(f"batch-{n}.png", 64) for n in range(40))
        batch.add(mail.draft("nobody@example.com", "broken"))
    for one in (*broken, shaky, *charges, *images, report, rows):
        async for _ in one.watch():
            pass
    await batch.wait(timeout=60)
    await app.jobs.handle(shaky.id).rerun(by="marta")
    await app.jobs.handle(broken[0].id).discard(by="marta")
    await app.queues.pause("imports", by="marta")
    await app.schedules.set(
        "weekly_digest", Cron("30 2 * * 0", tz="Europe/Berlin"), mail.draft("all@example.com"), by="marta"
    )
    await tasks["import_rows"].submit("orders-2026-12.csv")
    await (
        tasks["transcode"]
        .options(customer="acme", tags=["4k", "priority"])
        .map([(f"holiday-{n}.mov", 900.0) for n in range(3)])
    )
    await charge.map([(3, 77), (3, 78), (3, 79), (4, 77), (5, 12)])
    await mail.options(delay=3600).map([(f"later{n}@example.com",) for n in range(6)])
    # No worker has it: that is a problem to show.
    nobodys, _ = await draft_with_warnings(app, "ocr_scan", {"page": 1}, {})
    await nobodys.submit()
    first = tasks["sales_of"].draft("Oslo", 2027)
    sales = tasks["sales_of"].options(after=[first], delay=900).draft("Lima", 2027)
    await app.submit_many([first, sales])
    await _past(app, chance)


async def _past(app: App, chance: random.Random) -> None:
    """What workers would have finished in the last days."""
    now, rows = app.host.clock.now(), list[Rollup]()
    for step, first, last in ((Step.MINUTE, 1, 300), (Step.HOUR, 6, 160), (Step.DAY, 7, 40)):
        for back in range(first, last):
            at = begin_of(now - timedelta(seconds=step.seconds * back), step)
            for task, queue, share, took in (
                ("send_mail", "mail", 40, 0.08),
                ("resize_image", "images", 22, 0.9),
                ("charge_card", "payments", 9, 0.4),
                ("build_report", "default", 2, 4.0),
            ):
                scale = step.seconds / 60 * (1 + 0.5 * abs((at.hour + at.minute / 60) - 12) / 12)
                number = max(0, round(share * scale * chance.uniform(0.6, 1.3)))
                bad = round(number * chance.choice([0, 0, 0, 0.02, 0.06]))
                totals = Totals(completed=number, failed=bad, retried=bad // 2, waited=Histogram(), ran=Histogram())
                for _ in range(min(number, 20)):
                    totals.waited.add(chance.expovariate(1 / 0.4))
                    totals.ran.add(chance.gauss(took, took / 5))
                rows.append(Rollup(step, at, task, queue, totals))
    for back in range(1, 60):
        wave = 60 - abs(30 - back) * 2 if back < 58 else 0
        deep = {"mail": wave * 9 + chance.randrange(20), "images": max(0, 40 - back), "imports": 1}
        rows += depth_rows(deep, now - timedelta(minutes=back))
    id = uuid4()
    info = WorkerInfo(
        id=id,
        host="mill-2",
        pid=4711,
        started_at=now,
        concurrency=16,
        tasks=("send_mail",),
        version="0.1.0",
        lease=3600.0,
        offers={"gpu": "a100", "memory": 80},
    )
    await app.session.engine.workers.register(info, now)
    for number, start in enumerate(range(0, len(rows), 500)):
        await app.session.engine.workers.beat(
            id, Beat(busy=5, done=8812, report=number + 1, finished=tuple(rows[start : start + 500])), now
        )
    await app.webhooks.add("https://shop.example/hooks", description="orders", by="marta")


@asynccontextmanager
async def served(url: str, port: int = 0) -> AsyncIterator[tuple[App, str]]:
    """The scene behind a hub, with a worker, and where; port 0: a free one."""
    from headrace.hub import Hub, HubOptions
    from headrace.hub.server.server import HubServer, listen

    app = scene(url)
    async with AsyncExitStack() as stack:
        stack.enter_context(app.override(host=Mill()))
        await stack.enter_async_context(app)
        await stack.enter_async_context(app.worker(concurrency=12, grace=0.1))
        server = HubServer(Hub(app, HubOptions(maintenance=False, webhooks=False, access_log=False)))
        listener = listen("127.0.0.1", port)
        serving = await server.begin(listener)
        try:
            yield app, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.stop()
            server.stop()
            await serving


async def main() -> None:
    """Serve it."""
    async with served(sys.argv[1] if len(sys.argv) > 1 else "memory://", 8471) as (app, address):
        await acted_out(app)
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
