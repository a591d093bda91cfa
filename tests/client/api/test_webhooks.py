"""Webhooks through an App, on every engine: subscriptions, submits that name one, deliveries in the same commit."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Status
from headrace.client.api.webhooks import forget_unused_webhooks, note_delivered, note_undelivered, webhook_credentials
from headrace.core.job import Job
from headrace.core.webhooks.addresses import AddressRule
from headrace.core.webhooks.delivery import QUEUE, TASK
from headrace.errors import ConfigError, TransitionRefused, UnknownWebhook
from headrace.runtime.writes.webhooks import OF_JOBS, SECRETS
from tests.support.apps import ENGINES, Sums, url_of
from tests.support.until import until

URL = "https://hooks.example/x"
SECRET = "whsec_" + "A" * 32


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


@pytest.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Sums]:
    """On one engine, for what does not depend on it."""
    made = Sums("memory://")
    async with made.app:
        yield made


async def told(app: App, **of: Any) -> list[str]:
    """The types of the messages, oldest first."""
    return [one.payload["message"]["type"] for one in reversed((await app.webhooks.deliveries(**of)).items)]


async def end(app: App, delivery: Job, why: str | None = None) -> None:
    """End a delivery by hand."""
    await app.jobs.handle(delivery.id).resolve(error=why or None)


# -- subscriptions


async def test_a_subscription_is_kept_and_its_secret_shown_once(sums: Sums) -> None:
    app = sums.app
    made = await app.webhooks.add(
        URL, events=["completion"], tasks=["add"], queues=["default"], description="ours", bearer="tok", by="ann"
    )
    assert made.secret.startswith("whsec_")
    assert made.secret not in repr(made)
    [kept] = await app.webhooks.list()
    assert kept == made.webhook == await app.webhooks.get(made.webhook.id)
    assert (kept.url, kept.tasks, kept.queues, kept.created_by) == (URL, ("add",), ("default",), "ann")
    assert (kept.signed, kept.bearer, kept.on) == (True, True, True)
    for shown in (kept.to_dict(), [one.to_dict() for one in await app.store.audit()]):
        assert made.secret not in str(shown)
        assert "tok" not in str(shown)
    settings = {one.key: one.value for one in await app.session.engine.documents.settings("webhook")}
    assert [key for key, value in settings.items() if made.secret in value] == [SECRETS + kept.id], "apart"
    await app.webhooks.delete(kept.id, by="ann")
    assert await app.webhooks.list() == []
    assert await app.session.engine.documents.settings("webhook") == []
    acts = [(one.verb, one.by) for one in await app.store.audit() if one.key.endswith(kept.id)]
    assert acts == [("delete", "ann"), ("add", "ann")]
    for verb in (app.webhooks.get, app.webhooks.delete, app.webhooks.test, app.webhooks.set, app.webhooks.rotate):
        with pytest.raises(UnknownWebhook, match="headrace webhooks"):
            await verb(kept.id)


async def test_a_subscription_is_changed(quick: Sums) -> None:
    app = quick.app
    id = (await app.webhooks.add(URL)).webhook.id
    changed = await app.webhooks.set(id, url=URL + "y", events=["progress"], tasks=["a"], queues=["q"], description="d")
    assert (changed.url, changed.events, changed.tasks, changed.queues) == (URL + "y", ("progress",), ("a",), ("q",))
    off = await app.webhooks.set(id, on=False, by="ann")
    assert (off.on, off.off_because) == (False, "switched off by ann")
    await quick.add.submit(1)
    assert await told(app) == []
    assert (await app.webhooks.set(id, on=True)).on
    assert (await app.webhooks.list())[0].off_because is None


async def test_secrets_rotate(quick: Sums) -> None:
    app = quick.app
    made = await app.webhooks.add(URL, secret=SECRET)
    new = await app.webhooks.rotate(made.webhook.id, keep=60)
    kept, now = await webhook_credentials(app, made.webhook.id), app.host.clock.now()
    assert kept.signing(now) == [new.secret, SECRET]
    last = await app.webhooks.rotate(made.webhook.id, keep=0)
    assert (await webhook_credentials(app, made.webhook.id)).signing(now) == [last.secret, SECRET]


@pytest.mark.parametrize(
    "given", [{"url": "nowhere"}, {"events": ["x"]}, {"tasks": "add"}, {"secret": "x"}, {"bearer": "a b"}]
)
async def test_what_cannot_be_a_subscription_is_refused(quick: Sums, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        await quick.app.webhooks.add(**{"url": URL, **given})
    assert await quick.app.session.engine.documents.settings("webhook") == []


# -- jobs


async def test_a_job_is_told_of_from_its_submit_to_its_end(sums: Sums) -> None:
    app = sums.app
    hook = (await app.webhooks.add(URL)).webhook.id
    job = await sums.add.submit(1, 2)
    assert await told(app) == ["job.submitted"]
    async with app.worker():
        await job.result(timeout=20)
    assert await told(app, webhook=hook) == ["job.submitted", "job.started", "job.completed"]
    assert await told(app, job=job.id) == ["job.submitted", "job.started", "job.completed"]
    found = list(reversed((await app.webhooks.deliveries()).items))
    assert [one.queue for one in found] == [QUEUE] * 3
    assert [one.after for one in found] == [(), (found[0].id,), (found[1].id,)]
    assert [one.status for one in found] == [Status.QUEUED, Status.WAITING, Status.WAITING], "no worker takes them"
    assert found[2].payload["message"]["data"]["result"] == 3
    await end(app, found[0], "no")
    await until(lambda: _is(app, found[1], Status.QUEUED))
    await end(app, found[1])
    await until(lambda: _is(app, found[2], Status.QUEUED))


async def _is(app: App, job: Job, status: Status) -> bool:
    return (await app.jobs.get(job.id)).status is status


async def test_a_failing_job_is_told_of_each_retry_and_its_end(sums: Sums) -> None:
    app = sums.app
    await app.webhooks.add(URL, events=["retrying", "failed", "cancelled"])
    job = await sums.fail.submit("no")
    async with app.worker():
        await until(lambda: _is(app, job.last, Status.RETRYING) if job.last else False)
        await app.jobs.handle(job.id).cancel()
    assert await told(app) == ["job.retrying", "job.cancelled"]


async def test_progress_is_told(sums: Sums) -> None:
    app = sums.app
    job = await sums.multiply.options(webhook={"url": URL, "events": ["progress"]}).submit(2, 3)
    async with app.worker():
        assert await job.result(timeout=20) == 6
    assert await told(app) == ["job.progress"]
    [delivery] = (await app.webhooks.deliveries()).items
    assert delivery.payload["message"]["data"]["progress"]["message"] == "half"


async def test_submits_of_every_kind_are_told(sums: Sums) -> None:
    app = sums.app
    hook = (await app.webhooks.add(URL, events=["submitted"])).webhook.id
    await sums.add.submit(1)
    await sums.add.map([(n,) for n in range(5)])
    a = sums.add.draft(1)
    await app.submit_many([a, sums.add.options(after=[a]).draft(2)])
    async with app.batch() as batch:
        batch.add_many(sums.add.draft(n) for n in range(3))
    await app.submit("add", {"a": 1})
    await sums.add.options(dedup="k").submit(1)
    await sums.add.options(dedup="k").submit(1)
    await sums.add.options(dedup="r", on_duplicate="replace").submit(1)
    await sums.add.options(dedup="r", on_duplicate="replace").submit(2)
    assert len(await told(app, webhook=hook, limit=100)) == 1 + 5 + 2 + 3 + 1 + 1 + 1
    draft = sums.add.draft(9)
    for _ in range(2):
        await draft.submit()
    assert len(await told(app, webhook=hook, limit=100)) == 15, "a repeat tells nothing more"
    ledger = (await app.stats.counts()).ledger
    assert ledger.unaccounted == 0


async def test_more_than_one_write_takes_is_told_whole(sums: Sums) -> None:
    await sums.app.webhooks.add(URL, events=["submitted"])
    await sums.add.map([(n,) for n in range(1200)])
    assert await sums.app.jobs.count(task=TASK) == 1200
    async with sums.app.batch() as batch:
        batch.add_many(sums.add.draft(n) for n in range(700))
    assert await sums.app.jobs.count(task=TASK) == 1900


async def test_what_follows_a_batch_is_told(sums: Sums) -> None:
    app = sums.app
    await app.webhooks.add(URL, tasks=["multiply"], events=["submitted"])
    async with app.worker(tasks=["add"]), app.batch(on_complete=sums.multiply.draft(1, 2)) as batch:
        batch.add(sums.add.draft(1))
        await batch.submit()
        await until(lambda: told(app))
    assert await told(app) == ["job.submitted"]


async def test_a_submit_within_a_transaction_is_told_with_it(tmp_path: Path) -> None:
    for kind in ("sqlite", "postgres"):
        sums = Sums(url_of(kind, tmp_path))
        async with sums.app as app:
            await app.webhooks.add(URL, events=["submitted"])
            await sums.multiply.options(webhook={"url": URL, "events": ["failed"]}).submit(1, 2)
            await app.jobs.handle((await app.webhooks.deliveries()).items[0].id).resolve()
            assert app.session.engine.transactions is not None
            with suppress(ZeroDivisionError):
                async with app.session.engine.transactions.transaction() as connection:
                    await sums.add.options(connection=connection).submit(1)
                    raise ZeroDivisionError
            assert await told(app, status="queued") == []
            async with app.session.engine.transactions.transaction() as connection:
                await sums.add.options(connection=connection, dedup="k").submit(1)
                await sums.add.options(connection=connection, webhook=URL).submit(2)
                assert await told(app, status="queued") == []
            assert await told(app, status="queued") == ["job.submitted"] * 3


def test_a_submit_without_a_loop_is_told(tmp_path: Path) -> None:
    sums = Sums(url_of("sqlite", tmp_path))
    app = sums.app
    sums.add.submit_sync(1)
    app.wait(app.webhooks.add(URL, events=["submitted"]))
    sums.add.submit_sync(2)
    sums.add.options(webhook=URL).submit_sync(3)
    assert len(app.wait(told(app))) == 3


async def test_a_submit_names_its_own_webhook_by_both_spellings(sums: Sums) -> None:
    app = sums.app
    ours = {"url": URL, "events": ["completion"], "bearer": "tok-1", "secret": SECRET}
    page = {
        "webhook_url": URL,
        "events": ["status_change", "progress", "completion"],
        "authentication": {"type": "bearer_token", "token": "tok-1"},
    }
    one = await sums.add.options(webhook=ours).submit(1)
    two = await sums.add.options(webhook=page, customer="acme").submit(2)
    again = await sums.add.options(webhook={**ours, "events": ["failed"]}).submit(3)
    stored = [(await app.jobs.get(job.id)).webhook for job in (one, two, again)]
    [first], [second], [third] = (targets or () for targets in stored)
    assert first.id == third.id != second.id, "the same address with the same credentials is one webhook"
    assert (first.events, second.customer) == (("completed", "failed", "cancelled"), "acme")
    kept = await app.webhooks.get(first.id)
    assert (kept.of_jobs, kept.signed, kept.bearer, kept.url) == (True, True, True, URL)
    assert (await webhook_credentials(app, first.id)).bearer == "tok-1"
    assert await app.webhooks.list() == [], "it is no subscription"
    records = [(await app.jobs.get(job.id)).to_dict() for job in (one, two, again)]
    payloads = [job.payload_text for job in (await app.webhooks.deliveries()).items]
    for text in (str(records), str(payloads)):
        assert "tok-1" not in text
        assert SECRET not in text
        assert URL not in text
    assert len(await app.session.engine.documents.settings(OF_JOBS)) == 2


async def test_an_address_is_looked_up_once_not_for_each_submit(quick: Sums) -> None:
    app, asked = quick.app, []
    documents = app.session.engine.documents
    settings = documents.settings

    async def counted(prefix: str = "") -> Any:
        asked.append(prefix)
        return await settings(prefix)

    vars(documents)["settings"] = counted
    for n in range(20):
        await quick.add.options(webhook=URL).submit(n)
    once = len(asked)
    assert once < 8
    for n in range(20):
        await quick.add.submit(n)
    assert len(asked) == once


async def test_webhook_is_for_one_submit(quick: Sums) -> None:
    with pytest.raises(ConfigError, match=r"app\.webhooks\.add"):
        quick.app.task(webhook=URL)(lambda: None)
    with pytest.raises(ConfigError, match="webhook"):
        App("memory://", defaults={"webhook": URL})
    with pytest.raises(ConfigError, match="webhook"):
        quick.app.batch(on_complete=quick.add.options(webhook=URL).draft(1))


async def test_deliveries_have_no_webhooks_of_their_own(sums: Sums) -> None:
    app = sums.app
    await app.webhooks.add(URL)
    await sums.add.submit(1)
    [delivery] = (await app.webhooks.deliveries()).items
    await end(app, delivery)
    again = await app.webhooks.redeliver(delivery.id)
    assert len((await app.webhooks.deliveries()).items) == 2
    assert again.webhook is None
    assert again.payload == delivery.payload, "it is the same message"


async def test_a_rerun_is_told_of_to_its_own_webhook_and_to_who_subscribes_now(quick: Sums) -> None:
    app = quick.app
    job = await quick.add.options(webhook=URL).submit(1)
    await app.jobs.handle(job.id).resolve(result=2)
    new = (await app.webhooks.add(URL)).webhook.id
    again = await (await app.jobs.handle(job.id).rerun()).refresh()
    assert {one.id for one in again.webhook or ()} == {
        new,
        *(one.id for one in (await app.jobs.get(job.id)).webhook or ()),
    }
    assert await told(app, job=again.id) == ["job.submitted"] * 2


async def test_a_rerun_for_another_customer_is_not_told_of_to_the_first_one(quick: Sums) -> None:
    app = quick.app
    acme = (await app.webhooks.add(URL, customer="acme")).webhook.id
    ours = (await app.webhooks.add(URL)).webhook.id
    job = await quick.add.options(customer="acme", webhook=URL).submit(1)
    assert len((await job.refresh()).webhook or ()) == 3
    await app.jobs.handle(job.id).resolve(result=2)
    again = await (await app.jobs.handle(job.id).rerun(customer="other")).refresh()
    assert [one.id for one in again.webhook or ()] == [ours]
    assert await told(app, job=again.id, customer="acme") == []
    back = await (await app.jobs.handle(job.id).rerun()).refresh()
    assert {one.id for one in back.webhook or ()} >= {acme, ours}


async def test_a_rerun_tells_a_subscription_what_that_wants_now(quick: Sums) -> None:
    app = quick.app
    hook = (await app.webhooks.add(URL)).webhook.id
    job = await quick.add.submit(1)
    await app.jobs.handle(job.id).resolve(result=2)
    await app.webhooks.set(hook, events=["failed"])
    again = await (await app.jobs.handle(job.id).rerun()).refresh()
    assert [one.events for one in again.webhook or ()] == [("failed",)]
    await app.webhooks.set(hook, tasks=["another"])
    assert (await (await app.jobs.handle(job.id).rerun()).refresh()).webhook is None


async def test_an_address_that_was_removed_is_kept_again_when_a_submit_names_it(quick: Sums) -> None:
    app, draft = quick.app, quick.add.options(webhook={"url": URL, "secret": SECRET})
    [target] = (await (await draft.submit(1)).refresh()).webhook or ()
    await app.webhooks.delete(target.id)
    with pytest.raises(UnknownWebhook):
        await app.webhooks.get(target.id)
    await draft.submit(2)
    assert (await app.webhooks.get(target.id)).url == URL
    assert (await webhook_credentials(app, target.id)).secrets


# -- deliveries


async def test_redeliver_does_what_the_delivery_needs(sums: Sums) -> None:
    app = sums.app
    await app.webhooks.add(URL, events=["submitted"])
    job = await sums.add.submit(1)
    [delivery] = (await app.webhooks.deliveries()).items
    with pytest.raises(TransitionRefused):
        await app.webhooks.redeliver(delivery.id)
    await app.jobs.handle(delivery.id).postpone(60)
    assert (await app.webhooks.redeliver(delivery.id)).status is Status.QUEUED
    await end(app, delivery, "no")
    assert ((await app.webhooks.redeliver(delivery.id, by="ann")).id, await told(app)) == (
        delivery.id,
        ["job.submitted"],
    )
    with pytest.raises(TransitionRefused, match="no delivery"):
        await app.webhooks.redeliver(job.id)
    with pytest.raises(ConfigError, match="not of both"):
        await app.webhooks.deliveries(webhook="wh_1", job=job.id)


async def test_a_test_message_is_a_delivery(quick: Sums) -> None:
    app = quick.app
    hook = (await app.webhooks.add(URL, customer="acme")).webhook.id
    job = await (await app.webhooks.test(hook, by="ann")).refresh()
    assert (job.queue, job.customer) == (QUEUE, "acme")
    assert await told(app, webhook=hook, customer="acme") == ["webhook.test"]
    assert await told(app, webhook=hook, customer="other") == []


async def test_ten_deliveries_given_up_in_a_row_switch_a_subscription_off(
    quick: Sums, caplog: pytest.LogCaptureFixture
) -> None:
    app = quick.app
    hook = (await app.webhooks.add(URL)).webhook
    for _ in range(9):
        assert (await note_undelivered(app, hook.id, "HTTP 500")).on
    await note_delivered(app, await app.webhooks.get(hook.id))
    with caplog.at_level(logging.WARNING, "headrace.webhooks"):
        for _ in range(10):
            await note_undelivered(app, hook.id, "HTTP 500")
    [off] = await app.webhooks.list()
    assert off.off_because == "10 deliveries in a row failed; the last: HTTP 500"
    assert caplog.text.count("is switched off") == 1
    assert hook.id in caplog.text
    await quick.add.submit(1)
    assert await told(app) == [], "nothing more is stored for it"
    checks = [check for check in await app.store.doctor() if check.name == "webhooks"]
    assert [check.level for check in checks] == ["warn"]
    assert hook.id in checks[0].message


async def test_addresses_that_nobody_names_any_more_are_forgotten(quick: Sums) -> None:
    app = quick.app
    await quick.add.options(webhook={"url": URL, "bearer": "old"}).submit(1)
    await quick.add.options(webhook={"url": URL, "bearer": "new"}).submit(1)
    documents = app.session.engine.documents
    old, _ = await documents.settings(OF_JOBS)
    await documents.put_setting(old.key, old.value.replace('"used_at":"20', '"used_at":"19'), old.rev)
    assert await forget_unused_webhooks(app) == 1
    assert await forget_unused_webhooks(app) == 0
    assert len(await documents.settings(OF_JOBS)) == len(await documents.settings(SECRETS)) == 1


async def test_the_doctor_says_who_would_deliver(quick: Sums) -> None:
    await quick.app.webhooks.add(URL, events=["submitted"])
    await quick.add.submit(1)
    async with quick.app.worker(queues=["default"]):
        await until(lambda: _remedies(quick.app))
        assert {"headrace hub" in remedy for remedy in await _remedies(quick.app)} == {True}


async def _remedies(app: App) -> list[str]:
    about = [check for check in await app.store.doctor() if check.level == "fail" and "headrace." in check.message]
    return [check.remedy or "" for check in about] if len(about) == 2 else []


async def test_a_customer_does_not_take_the_place_of_others(sums: Sums) -> None:
    for _ in range(10):
        await sums.app.webhooks.add(URL, customer="ann")
    with pytest.raises(ConfigError, match="may have 10 webhooks, and there are 10 already: remove one"):
        await sums.app.webhooks.add(URL, customer="ann")
    await sums.app.webhooks.add(URL, customer="ann", most=11)
    with pytest.raises(ConfigError, match="there are 11 already"):
        await sums.app.webhooks.add(URL, customer="ann", most=11)
    await sums.app.webhooks.add(URL, customer="bob")
    await sums.app.webhooks.add(URL)


async def test_a_program_is_warned_of_an_address_that_hubs_refuse(
    quick: Sums, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = quick.app.webhooks
    fine = (await hooks.add(URL)).webhook
    await hooks.add("http://127.0.0.1:8000/", rule=AddressRule(["127.0.0.0/8"], http=True))
    await hooks.set(fine.id, description="no other address")
    assert caplog.messages == []
    await hooks.set(fine.id, url="https://[::1]/")
    await hooks.add("http://hooks.example/")
    assert ["--webhook-allow ::1" in caplog.messages[0], "--webhook-http" in caplog.messages[1]] == [True, True]
