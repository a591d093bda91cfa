"""What a session knows of webhooks: read seldom, never for long out of date, and not by each of many at once."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headrace.core.job import Job
from headrace.core.webhooks.addresses import AddressRule
from headrace.core.webhooks.subscription import Webhook, Wish
from headrace.core.webhooks.target import EVENTS, Target
from headrace.engine import Setting
from headrace.errors import ConfigError, Unavailable
from headrace.runtime.writes import webhooks as module
from headrace.runtime.writes.webhooks import CACHE_SECONDS, OF_JOBS, SUBSCRIPTIONS, Webhooks, read_webhooks
from tests.support.world import World, world

WISH = Wish("https://hooks.example/", EVENTS)


async def subscribe(made: World, id: str = "wh_1", **fields: Any) -> None:
    """As another process does: nobody tells this session."""
    hook = Webhook(id=id, url="https://hooks.example/", created_at=made.now, **fields)
    text = msgspec.json.encode(hook).decode()
    assert await made.engine.documents.put_setting(SUBSCRIPTIONS + id, text, 0) is not None


def count_reads(made: World) -> list[str]:
    asked, settings = list[str](), made.engine.documents.settings

    async def counted(prefix: str = "") -> list[Setting]:
        asked.append(prefix)
        await asyncio.sleep(0)
        return await settings(prefix)

    vars(made.engine.documents)["settings"] = counted
    return asked


async def told(made: World) -> int:
    job = await made.submit()
    return len(job.told or ())


async def test_a_subscription_of_another_process_is_heeded_after_five_seconds() -> None:
    async with world() as made:
        asked = count_reads(made)
        assert await told(made) == 0
        await subscribe(made)
        made.clock.advance(CACHE_SECONDS - 0.1)
        assert await told(made) == 0
        assert len(asked) == 1, "submits read nothing in between"
        made.clock.advance(0.1)
        assert await told(made) == 1
        assert len(asked) == 2


async def test_many_at_once_read_once() -> None:
    async with world() as made:
        await subscribe(made)
        asked = count_reads(made)
        found = await asyncio.gather(*(made.submit() for _ in range(20)))
        assert [len(job.told or ()) for job in found] == [1] * 20
        assert len(asked) == 1


async def test_one_that_gives_up_waiting_takes_nothing_from_the_others() -> None:
    async with world() as made:
        await subscribe(made)
        known, asked = Webhooks(made.engine, made.host), count_reads(made)
        first, second = (asyncio.create_task(known.look()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert known.fresh
        assert not known.silent
        assert len(asked) == 1


async def test_a_store_that_is_away_is_believed_to_have_what_it_had() -> None:
    async with world() as made:
        known = Webhooks(made.engine, made.host)
        made.engine.away = True
        with pytest.raises(Unavailable):
            await known.look()
        made.engine.away = False
        await subscribe(made)
        await known.look()
        made.engine.away = True
        made.clock.advance(CACHE_SECONDS)
        await known.look()
        assert known.fresh
        assert not known.silent


async def test_those_that_are_off_or_cannot_be_read_are_left_out() -> None:
    async with world() as made:
        await subscribe(made, "wh_off", off_at=made.now)
        await made.engine.documents.put_setting(SUBSCRIPTIONS + "wh_new", '{"url": 3}', 0)
        assert await told(made) == 0
        assert read_webhooks([Setting("x", "no json", 1)]) == []


async def test_an_address_is_kept_once_and_its_use_noted_by_the_day() -> None:
    async with world() as made:
        known = made.writer.inserts.webhooks

        async def used() -> list[int]:
            job: Job = await known.wished(await made.submit(), WISH)
            assert job.webhook is not None
            return [one.rev for one in await made.engine.documents.settings(OF_JOBS)]

        first = await used()
        made.clock.advance(hours=23)
        assert await used() == first
        made.clock.advance(hours=2)
        [again] = await used()
        assert [again] > first, "so it is not forgotten while it is used"


@pytest.mark.parametrize("credentials", [{}, {"bearer": "token", "secret": "whsec_" + 32 * "A"}])
async def test_two_customers_with_one_address_have_a_webhook_each(credentials: dict[str, Any]) -> None:
    async with world() as made:
        known = made.writer.inserts.webhooks
        wish = Wish(WISH.url, EVENTS, **credentials)

        async def named(customer: str | None) -> Target:
            job = await known.wished(await made.submit(customer=customer), wish)
            [target] = job.spec.webhook or ()
            return target

        customers = (None, "acme", "other")
        targets = {customer: await named(customer) for customer in customers}
        assert len({target.id for target in targets.values()}) == 3
        kept = {one.id: one for one in read_webhooks(await made.engine.documents.settings(OF_JOBS))}
        for customer, target in targets.items():
            assert (target.customer, kept[target.id].customer) == (customer, customer)
            assert await named(customer) == target, "the next job names the same one"


async def test_an_address_with_other_words_is_another_webhook() -> None:
    async with world() as made:
        known = made.writer.inserts.webhooks

        async def named(wish: Wish) -> str:
            [target] = (await known.wished(await made.submit(), wish)).spec.webhook or ()
            return target.id

        ours, theirs = await named(WISH), await named(Wish(WISH.url, EVENTS, words="emprops"))
        assert await named(Wish(WISH.url, EVENTS, words="headrace")) == ours
        kept = {one.id: one.words for one in read_webhooks(await made.engine.documents.settings(OF_JOBS))}
        assert kept == {ours: "headrace", theirs: "emprops"}


async def test_only_so_many_addresses_are_kept_for_a_customer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WEBHOOK_ADDRESSES", 2)
    async with world() as made:
        known = made.writer.inserts.webhooks

        async def name(n: int, customer: str) -> None:
            job = await made.submit(customer=customer)
            await known.wished(job, Wish(f"https://hooks.example/{n}", EVENTS))

        for n in (1, 2, 1):
            await name(n, "acme")
        with pytest.raises(ConfigError, match="use the same one for many jobs"):
            await name(3, "acme")
        await name(3, "other")


@pytest.mark.parametrize("options", [{}, {"http": True}])
async def test_an_address_of_a_job_that_hubs_refuse_is_warned_of_once_when_it_is_first_named(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with world() as made:
        webhooks = made.writer.inserts.webhooks
        if options:
            webhooks.rule = AddressRule(**options)
        job = await made.submit()
        for _ in range(3):
            webhooks.forget()
            await webhooks.wished(job, Wish("http://hooks.example/jobs?token=abc", EVENTS))
            await webhooks.wished(job, WISH)
    said = [record.getMessage() for record in caplog.records if "gets nothing from a hub" in record.getMessage()]
    assert len(said) == (0 if options else 1)
    assert all("to hooks.example gets" in one and "--webhook-http" in one for one in said)
