"""Durable steps: done once, whatever becomes of the attempt."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from headrace import App, Retry
from headrace.core.entry import Kind
from headrace.core.job import Spec
from headrace.core.lifecycle.loss import lose
from headrace.core.lifecycle.submission import submit
from headrace.core.status import Cause, Reason, Status
from headrace.errors import ConfigError, InvalidResult, Stopped
from headrace.runtime.host import Host
from headrace.testing import harness
from headrace.worker.execution.context import Context
from tests.support.shop import Shop
from tests.support.until import until


@dataclass
class Receipt:
    """What a step returns."""

    number: int
    lines: list[str]


class Bank:
    """Counts what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def charge(self, customer: int, cents: int) -> Receipt:
        self.calls.append("charge")
        return Receipt(len(self.calls), [f"{customer}: {cents}"])

    def mail(self, to: str) -> int:
        self.calls.append("mail")
        return threading.get_ident()

    async def broken(self) -> int:
        self.calls.append("broken")
        raise ValueError("down")


async def test_a_step_is_not_run_again(shop: Shop) -> None:
    bank, receipts = Bank(), list[Any]()

    async def order(ctx: Context, customer: int) -> int:
        receipt = await ctx.step("charge", bank.charge, customer, cents=500)
        receipts.append(receipt)
        await ctx.step("mail", bank.mail, "a@b.c")
        if ctx.attempt < 3:
            raise ValueError("after the steps")
        return receipt.number

    shop.task(order)
    async with shop.worker():
        job = await shop.ended(await shop.submit("order", payload={"customer": 7}))
    assert (job.status, job.result, job.attempt) == (Status.COMPLETED, 1, 3)
    assert bank.calls == ["charge", "mail"]
    assert receipts == [Receipt(1, ["7: 500"])] * 3, "the same in every attempt, in its own type"


async def test_a_plain_function_is_called_in_a_thread(shop: Shop) -> None:
    bank = Bank()

    async def order(ctx: Context) -> bool:
        return await ctx.step("mail", bank.mail, "a@b.c") != threading.get_ident()

    shop.task(order)
    async with shop.worker():
        assert (await shop.ended(await shop.submit("order"))).result is True


async def test_a_plain_handler_has_steps_too(shop: Shop) -> None:
    bank, here = Bank(), list[bool]()

    def order(ctx: Context) -> str:
        here.append(ctx.step_sync("mail", bank.mail, "a@b.c") == threading.get_ident())
        if ctx.attempt == 1:
            raise ValueError
        return "done"

    shop.task(order)
    async with shop.worker():
        assert (await shop.ended(await shop.submit("order"))).result == "done"
    assert bank.calls == ["mail"]
    assert here[0], "on the thread of the handler"


async def test_a_plain_handler_may_have_steps_on_a_loop_of_its_own(shop: Shop) -> None:
    bank = Bank()

    def order(ctx: Context, customer: int) -> int:
        async def work() -> int:
            ctx.progress(50)
            await ctx.flush()
            receipt = await ctx.step("charge", bank.charge, customer, cents=500)
            await ctx.step("mail", bank.mail, "a@b.c")
            return receipt.number

        number = asyncio.run(work())
        if ctx.attempt < 2:
            raise ValueError("after the steps")
        return number

    shop.task(order)
    async with shop.worker():
        job = await shop.ended(await shop.submit("order", payload={"customer": 7}))
    assert (job.status, job.result, job.attempt) == (Status.COMPLETED, 1, 2)
    assert bank.calls == ["charge", "mail"]


async def test_a_step_that_raised_is_tried_again(shop: Shop) -> None:
    bank = Bank()

    async def order(ctx: Context) -> str:
        for _ in range(2):
            with pytest.raises(ValueError, match="down"):
                await ctx.step("broken", bank.broken)
        if ctx.attempt == 1:
            raise ValueError
        return "done"

    shop.task(order)
    async with shop.worker():
        assert (await shop.ended(await shop.submit("order"))).result == "done"
    assert bank.calls == ["broken"] * 4


async def when_stopped(ctx: Context, go: threading.Event) -> None:
    """Let the others go on once the handler is asked to stop."""
    await until(lambda: ctx.stopping)
    go.set()


@pytest.mark.parametrize("how", ["a stop", "a time-out"])
async def test_a_plain_function_is_waited_for_when_its_handler_is_stopped(shop: Shop, how: str) -> None:
    begun, go, calls, watching = threading.Event(), threading.Event(), list[int](), list[Any]()

    def pay() -> str:
        calls.append(1)
        begun.set()
        go.wait(45)
        return "receipt"

    async def order(ctx: Context) -> str:
        watching.append(asyncio.create_task(when_stopped(ctx, go)))
        try:
            return await ctx.step("charge", pay)
        finally:
            watching.pop().cancel()

    shop.task(order)
    id = await shop.submit("order")
    async with shop.worker(grace=0.5) as worker:
        await asyncio.to_thread(begun.wait, 45)
        if how == "a time-out":
            (run,) = worker._slots.runs.values()
            run.stop("timed_out")  # as when its time is up
            await shop.ended(id)
    async with shop.worker():
        job = await shop.ended(id)
    assert (job.status, job.result, job.attempt) == (Status.COMPLETED, "receipt", 2)
    assert calls == [1]


async def test_a_plain_function_that_fails_when_its_handler_is_stopped_was_not_done(shop: Shop) -> None:
    begun, go, calls, heard = threading.Event(), threading.Event(), list[int](), list[str | None]()

    def pay() -> str:
        calls.append(1)
        begun.set()
        if len(calls) == 1:
            go.wait(45)
            raise ValueError("too late")
        return "receipt"

    async def order(ctx: Context) -> str:
        watching = asyncio.create_task(when_stopped(ctx, go))
        try:
            return await ctx.step("charge", pay)
        except asyncio.CancelledError:
            heard.append(ctx.stopping)
            raise
        finally:
            watching.cancel()

    shop.task(order)
    id = await shop.submit("order")
    async with shop.worker(grace=0.3):
        await asyncio.to_thread(begun.wait, 45)
    async with shop.worker():
        job = await shop.ended(id)
    assert (job.status, job.result, job.attempt, job.charged) == (Status.COMPLETED, "receipt", 2, 1)
    assert (len(calls), heard) == (2, ["shutdown"]), "being stopped is what the handler hears of, not the error"


async def test_the_result_is_durable_before_the_next_line(shop: Shop) -> None:
    bank, stepped, go_on = Bank(), asyncio.Event(), asyncio.Event()

    async def order(ctx: Context) -> str:
        await ctx.step("charge", bank.charge, 1, 2)
        if ctx.attempt == 1:
            stepped.set()
            await go_on.wait()
        return "done"

    shop.task(order)
    async with shop.worker(concurrency=2):
        id = await shop.submit("order")
        await asyncio.wait_for(stepped.wait(), 45)
        assert (await shop.get(id)).status is Status.RUNNING, "its start was on record first"
        rules, now = shop.engine.rules, shop.host.clock.now()
        await shop.writer.decide(id, lambda job, _: lose(job, Cause.LEASE, now, 0.5, rules))
        assert (await shop.ended(id)).result == "done"
        go_on.set()
    assert bank.calls == ["charge"]


async def test_a_step_of_a_worker_that_lost_the_job_is_refused(shop: Shop) -> None:
    bank, began, go_on = Bank(), asyncio.Event(), asyncio.Event()
    told: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def order(ctx: Context) -> int:
        if ctx.attempt > 1:
            return (await ctx.step("charge", bank.charge, 2, 2)).number
        await ctx.flush()
        began.set()
        try:
            await asyncio.shield(go_on.wait())
            await ctx.step("charge", bank.charge, 1, 1)
        except BaseException as error:
            told.set_result(error)
            raise
        return 0

    shop.task(order)
    async with shop.worker(concurrency=2):
        id = await shop.submit("order")
        await asyncio.wait_for(began.wait(), 45)
        rules, now = shop.engine.rules, shop.host.clock.now()
        await shop.writer.decide(id, lambda job, _: lose(job, Cause.LEASE, now, 0.5, rules))
        await shop.ended(id)
        go_on.set()
        assert isinstance(await asyncio.wait_for(told, 45), Stopped | asyncio.CancelledError)
    assert (await shop.get(id)).result in (1, 2)
    kept = await shop.engine.entries.tail(id, Kind.STEP)
    assert [(entry.attempt, entry.name) for entry in kept] == [(2, "charge")]


async def test_a_name_is_used_once_in_an_attempt(shop: Shop) -> None:
    bank = Bank()

    async def order(ctx: Context) -> str:
        await ctx.step("charge", bank.charge, 1, 2)
        with pytest.raises(ConfigError, match="charge"):
            await ctx.step("charge", bank.charge, 1, 2)
        for name in ("", "\0", "half of \ud800"):  # not every engine could keep it
            with pytest.raises(ConfigError, match="name"):
                await ctx.step(name, bank.charge, 1, 2)
        return "done"

    shop.task(order)
    async with shop.worker():
        assert (await shop.ended(await shop.submit("order"))).result == "done"
    assert bank.calls == ["charge"]


async def test_a_result_that_cannot_be_kept_fails_the_attempt(shop: Shop) -> None:
    async def wrong() -> int:
        return "one"  # type: ignore[return-value]

    async def order(ctx: Context) -> None:
        with pytest.raises(InvalidResult, match="step 'wrong'"):
            await ctx.step("wrong", wrong)
        await ctx.step("wrong", wrong)

    shop.task(order)
    async with shop.worker():
        job = await shop.ended(await shop.submit("order"))
    assert (job.status, job.reason) == (Status.FAILED, Reason.INVALID_RESULT)


async def test_steps_side_by_side(shop: Shop) -> None:
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return n * 2

    async def order(ctx: Context) -> int:
        doubled = await asyncio.gather(*(ctx.step(f"double {n}", double, n) for n in range(50)))
        if ctx.attempt == 1:
            raise ValueError
        return sum(doubled)

    shop.task(order)
    async with shop.worker():
        assert (await shop.ended(await shop.submit("order"))).result == 2450


async def test_a_direct_call_keeps_nothing() -> None:
    bank, now = Bank(), Host().clock.now()
    ctx = Context._detached(submit(Host().dice.new_id(now), Spec(task="order", created_at=now), "{}", now))
    assert await ctx.step("charge", bank.charge, 1, 2) == Receipt(1, ["1: 2"])
    assert await ctx.step("charge", bank.charge, 1, 2) == Receipt(2, ["1: 2"])
    assert ctx.step_sync("mail", bank.mail, "x") == threading.get_ident()


async def test_under_a_harness() -> None:
    bank, app = Bank(), App("memory://")

    @app.task(retry=Retry(1, backoff="fixed", initial=0.0))
    async def order(ctx: Context) -> int:
        receipt = await ctx.step("charge", bank.charge, 1, 2)
        logging.getLogger("shop").warning("attempt %d", ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError
        return receipt.number

    async with harness(app) as h:
        job = await order.submit()
        await h.drain()
        assert await job.result() == 1
        assert [line.message async for line in job.logs()] == ["attempt 1", "attempt 2"]
    assert bank.calls == ["charge"]
