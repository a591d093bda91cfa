"""In a real browser, on SQLite and PostgreSQL: what is set while running, checked while one types, and by keyboard."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.async_api import expect

from headrace.core.schedule.rules import Cron, Every
from tests.dashboard.shop import Shop, looking, sure

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("dashboard"),
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("quiet"),
]


async def test_a_schedule_made_in_the_form_fires(shop: Shop) -> None:
    name = "every so often"
    async with looking(shop, "/schedules") as page:
        form = page.locator("form[data-act='schedule.set']")
        await form.locator("[name=name]").fill(name)
        await form.locator("[name=task]").select_option("add")
        await form.locator("[name=expr]").fill("30 2 29 3 *")
        await form.locator("[name=tz]").fill("Europe/Berlin")
        await expect(form.locator(".preview tr").first).to_contain_text("UTC+0")
        await form.locator("[name=expr]").fill("61 * * * *")
        await expect(form.locator(".wrong[data-for=expr]")).to_contain_text("not a cron expression")
        await form.locator("[name=kind]").select_option("every")
        await form.locator("[name=seconds]").fill("0.01")
        await expect(form.locator(".wrong[data-for=seconds]")).to_be_visible()
        await form.locator("[name=seconds]").fill("0.5")
        await form.locator("[name=payload]").fill('{"a": ')
        await expect(form.locator(".wrong[data-for=payload]")).to_contain_text("no JSON")
        await form.locator("[name=payload]").fill('{"a": "many"}')
        await expect(form.locator(".wrong[data-for=payload]")).to_contain_text("add: a: Expected `int`")
        await form.locator("[name=payload]").fill('{"a": 5}')
        await expect(form.locator(".wrong[data-for=payload]")).to_be_hidden()
        await expect(form.locator(".preview tr")).to_have_count(6)
        await form.get_by_role("button", name="Create").click()
        await page.wait_for_url("**/schedules/every%20so%20often")
        await expect(page.locator("table.jobs tbody tr").first).to_be_visible()
        await page.get_by_role("button", name="Pause").click()
        await sure(page, "Pause")
        await expect(page.locator("h1 .status.paused")).to_be_visible()
        await page.get_by_role("button", name="Resume").click()
        await expect(page.locator("h1 .status.active")).to_be_visible()
        await page.get_by_role("button", name="Trigger").click()
        await sure(page, "Trigger")
        await page.wait_for_url("**/jobs/*")
        await page.goto(f"{shop.address}/schedules/every%20so%20often")
        await expect(page.locator(".events")).to_contain_text("pause")
        await page.get_by_role("button", name="Delete").click()
        await sure(page, "Delete")
        await page.wait_for_url("**/schedules")
    made = (await shop.app.jobs.list(schedule=name)).items
    assert len(made) >= 2
    assert all(job.payload == {"a": 5} for job in made)


async def test_queues_limits_and_rates_are_set_live(shop: Shop) -> None:
    await shop.app.tasks["add"].options(queue="aside", delay=3600).submit(1)
    async with looking(shop, "/queues") as page:
        row = page.locator("tr[data-key=aside]")
        await row.get_by_role("button", name="Pause").click()
        await sure(page, "Pause")
        await expect(row.locator(".status.paused")).to_be_visible()
        await row.get_by_role("button", name="Resume").click()
        await expect(row.locator(".status.paused")).to_have_count(0)
        await page.goto(f"{shop.address}/queues/aside")
        await page.locator("form [name=max_concurrency]").fill("7")
        await page.get_by_role("button", name="Set", exact=True).click()
        await expect(page.locator("#told")).to_contain_text("is set")
        await expect(page.locator(".tiles")).to_contain_text("/ 7")
        await expect(page.locator(".events")).to_contain_text("pause")
        await page.goto(f"{shop.address}/limits")
        await page.get_by_text("Set a rate").click()
        form = page.locator("form[data-act='rate.set']")
        await form.locator("[name=name]").fill("post")
        await form.locator("[name=limit]").fill("3")
        await form.get_by_role("button", name="Set", exact=True).click()
        await expect(page.locator("tr[data-key=post]")).to_contain_text("3 in 1 min")
        holding = [await shop.app.tasks["charge"].submit(9, 0) for _ in range(2)]
        await page.goto(f"{shop.address}/limits/charge")
        await expect(page.locator("section[aria-labelledby=holders] tbody tr")).to_have_count(1)
        await expect(page.locator("section[aria-labelledby=keys]")).to_contain_text("customer:9")
        await page.locator("form [name=max_per_key]").fill("2")
        await page.get_by_role("button", name="Set", exact=True).click()
        await expect(page.locator("section[aria-labelledby=holders] tbody tr")).to_have_count(2)
        for handle in holding:
            await shop.app.jobs.handle(handle.id).cancel()
    assert [one.max_concurrency for one in await shop.app.queues.list() if one.name == "aside"] == [7]
    assert (await shop.app.rates.list())["post"].limit == 3


async def test_a_schedule_is_edited_and_keeps_what_the_form_does_not_show(shop: Shop) -> None:
    app, name = shop.app, "to be edited"
    draft = app.tasks["add"].options(queue="aside", priority=77, tags=["kept"]).draft(1)
    await app.schedules.set(name, Every(hours=5, jitter=60), draft)
    async with looking(shop, f"/schedules/{quote(name)}") as page:
        form = page.locator("form[data-act='schedule.edit']")
        assert await form.locator("[name=seconds]").input_value() == "18000"
        await expect(form.locator(".preview tr")).to_have_count(6)
        await form.locator("[name=kind]").select_option("cron")
        await form.locator("[name=expr]").fill("30 2 * * 0")
        await form.locator("[name=tz]").fill("Europe/Nowhere")
        await expect(form.locator(".wrong[data-for=tz]")).to_be_visible()
        await form.locator("[name=tz]").fill("Europe/Berlin")
        await form.locator("[name=overlap]").select_option("skip")
        await form.locator("[name=payload]").fill('{"a": "x"}')
        await expect(form.locator(".wrong[data-for=payload]")).to_contain_text("Expected `int`")
        await form.locator("[name=payload]").fill('{"a": 8, "b": 9}')
        await expect(form.locator(".wrong[data-for=payload]")).to_be_hidden()
        await form.get_by_role("button", name="Change").click()
        await expect(page.locator("#told")).to_contain_text("is changed")
        await expect(page.locator(".tiles")).to_contain_text("30 2 * * 0 Europe/Berlin")
        await expect(page.locator(".events")).to_contain_text("set schedule:to be edited by local")
    info = await app.schedules.get(name)
    assert info.rule == Cron("30 2 * * 0", tz="Europe/Berlin", overlap="skip", jitter=60)
    assert (info.payload, info.queue, info.priority) == ({"a": 8, "b": 9}, "aside", 77)
    made = await app.schedules.trigger(name)
    assert (await made.refresh()).tags == ("kept",)
    await app.schedules.delete(name)


async def test_a_queue_is_given_another_priority_and_lines_for_customers(shop: Shop) -> None:
    later = shop.app.tasks["add"].options(queue="lines")
    await shop.app.queues.pause("lines")
    await later.options(customer="ann").map([(1,), (2,)])
    await later.options(customer="bob").submit(3)
    async with looking(shop, "/queues/lines") as page:
        form = page.locator("form[data-act='queue.set']")
        await form.locator("[name=rates]").fill("strip")
        await expect(form.locator(".wrong[data-for=rates]")).to_contain_text("There is no rate 'strip'")
        await form.locator("[name=rates]").fill("stripe")
        await expect(form.locator(".wrong[data-for=rates]")).to_be_hidden()
        await form.locator("[name=max_concurrency]").fill("0")
        await expect(form.locator(".wrong[data-for=max_concurrency]")).to_be_visible()
        await form.locator("[name=max_concurrency]").fill("")
        await form.locator("[name=priority]").fill("12")
        await form.locator("[name=by_customer]").check()
        await form.get_by_role("button", name="Set", exact=True).click()
        await expect(page.locator("#told")).to_contain_text("is set")
        lines = page.locator("section[aria-labelledby=customers] tbody tr")
        await expect(lines).to_have_count(2)
        await expect(lines.first).to_contain_text("ann")
        await expect(lines.first.locator("td").nth(1)).to_have_text("2")
        await expect(page.locator(".events")).to_contain_text("set queue:lines by local")
        [queue] = [one for one in await shop.app.queues.list() if one.name == "lines"]
        assert (queue.priority, queue.by_customer, queue.rates) == (12, True, ("stripe",))
        await page.get_by_role("button", name="Reset").click()
        await sure(page, "Reset")
        await expect(page.locator("section[aria-labelledby=customers]")).to_have_count(0)
    [queue] = [one for one in await shop.app.queues.list() if one.name == "lines"]
    assert (queue.priority, queue.by_customer, queue.rates) == (0, False, ())


async def test_limits_are_checked_while_one_types_set_and_reset(shop: Shop) -> None:
    async with looking(shop, "/limits") as page:
        await page.get_by_text("Limit a task").click()
        form = page.locator("form[data-act='limit.set']")
        await form.locator("[name=name]").fill("lins")
        await expect(form.locator(".wrong[data-for=name]")).to_contain_text("knows a task named 'lins'")
        await form.locator("[name=name]").fill("lines")
        await expect(form.locator(".wrong[data-for=name]")).to_be_hidden()
        await form.locator("[name=max_concurrency]").fill("-3")
        await expect(form.locator(".wrong[data-for=max_concurrency]")).to_be_visible()
        await form.locator("[name=max_concurrency]").fill("3")
        await form.get_by_role("button", name="Set", exact=True).click()
        await page.wait_for_url("**/limits/lines")
        await expect(page.locator(".tiles")).to_contain_text("0 / 3")
        await page.locator("form [name=max_concurrency]").fill("4")
        await page.get_by_role("button", name="Set", exact=True).click()
        await expect(page.locator(".tiles")).to_contain_text("0 / 4")
        await expect(page.locator(".events")).to_contain_text("set limit:lines by local")
        await page.get_by_role("button", name="Reset").click()
        await sure(page, "Reset")
        await expect(page.locator(".tiles")).to_contain_text("no limit")
    assert [one for one in await shop.app.limits.list() if one.task == "lines" and one.max_concurrency] == []


async def test_a_rate_is_checked_made_and_deleted(shop: Shop) -> None:
    async with looking(shop, "/limits") as page:
        await page.get_by_text("Set a rate").click()
        form = page.locator("form[data-act='rate.set']")
        await form.locator("[name=name]").fill("stripe")
        await form.locator("[name=limit]").fill("5")
        await expect(form.locator(".wrong[data-for=name]")).to_contain_text("It is there, and allows 100 in 1 min")
        await form.locator("[name=name]").fill("parcels")
        await form.locator("[name=limit]").fill("0")
        await expect(form.locator(".wrong[data-for=limit]")).to_be_visible()
        await form.locator("[name=limit]").fill("5")
        await form.get_by_role("button", name="Set", exact=True).click()
        row = page.locator("tr[data-key=parcels]")
        await expect(row).to_contain_text("5 in 1 min")
        await row.get_by_role("button", name="Delete").click()
        await expect(page.locator("#sure h2")).to_have_text("Delete the rate parcels?")
        await sure(page, "Delete")
        await expect(row).to_have_count(0)
    assert "parcels" not in await shop.app.rates.list()
    [deleted, _] = [one for one in await shop.app.store.audit() if one.key == "rate:parcels"]
    assert (deleted.verb, deleted.by) == ("forget", "local")


async def test_a_message_of_a_webhook_is_sent_again(shop: Shop) -> None:
    hook = await shop.app.webhooks.add("https://example.com/hook")
    handle = await shop.app.tasks["add"].options(delay=3600).submit(1)
    await shop.app.jobs.handle(handle.id).cancel()
    told = [one for one in (await shop.app.webhooks.deliveries(job=handle.id)).items if not one.ended]
    for one in told:
        await shop.app.jobs.handle(one.id).cancel()
    async with looking(shop, f"/jobs/{handle.id}") as page:
        rows = page.locator("section[aria-labelledby=deliveries] tbody tr")
        await expect(rows).to_have_count(len(told))
        again = page.locator(f"tr[data-key='{told[0].id}']")
        await expect(again.locator(".status.cancelled")).to_be_visible()
        await again.get_by_role("button", name="Send again").click()
        await sure(page, "Send again")
        await expect(page.locator("#told")).to_contain_text("sent once more")
        await expect(again.locator(".status.queued")).to_be_visible()
    assert (await shop.app.jobs.get(told[0].id)).redrives == 1
    await shop.app.webhooks.delete(hook.webhook.id)


async def test_the_keyboard_alone_sets_a_limit_and_pauses_a_queue(shop: Shop) -> None:
    await shop.app.tasks["add"].options(queue="keys", delay=3600).submit(1)
    async with looking(shop, "/queues/keys") as page:

        async def tab_to(what: str) -> None:
            for _ in range(80):
                await page.keyboard.press("Tab")
                if await page.evaluate("(what) => document.activeElement.matches(what)", what):
                    return
            raise AssertionError(f"{what} cannot be reached by Tab")

        await tab_to("[name=max_concurrency]")
        await page.keyboard.press("Control+a")
        await page.keyboard.type("9")
        await page.keyboard.press("Enter")
        await expect(page.locator(".tiles")).to_contain_text("/ 9")
        await page.reload()
        await tab_to("[data-do*='queue.pause']")
        await page.keyboard.press("Enter")
        await expect(page.locator("#sure")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("#sure")).to_be_hidden()
        assert await page.evaluate("document.activeElement.textContent") == "Pause", "the focus is where it was"
        await page.keyboard.press("Enter")
        await expect(page.locator("#sure")).to_be_visible()
        await page.keyboard.press("Enter")
        await expect(page.locator("h1 .status.paused")).to_be_visible()
        await tab_to("[data-do*='queue.resume']")
        await page.keyboard.press("Enter")
        await expect(page.locator("h1 .status.paused")).to_have_count(0)
    [queue] = [one for one in await shop.app.queues.list() if one.name == "keys"]
    assert (queue.max_concurrency, queue.paused) == (9, False)
