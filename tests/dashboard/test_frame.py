"""What every page has around it, pages that are not there, and how bars, numbers and forms look in a real browser."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from headrace.core.schedule.rules import Every
from tests.dashboard.looks import axe_faults
from tests.dashboard.shop import Shop, failed, looking, sure

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("frame"),
    pytest.mark.parametrize("shop", ["sqlite"], indirect=True),
]

GROUND = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(246, 247, 248)", "rgb(16, 19, 22)"
SIDES = """(cells) => cells.map((cell) => getComputedStyle(cell).textAlign === "right")"""


async def test_the_theme_that_was_chosen_is_kept_and_no_page_is_shown_in_another(shop: Shop) -> None:
    async with looking(shop, "/queues", color_scheme="light") as page:
        assert await page.evaluate(GROUND) == LIGHT
        button = page.get_by_role("button", name="Theme")
        await button.click()  # light
        await button.click()
        assert await page.evaluate(GROUND) == DARK
        await page.goto(shop.address + "/jobs")
        assert await page.evaluate(GROUND) == DARK
        html = await (await page.request.get(shop.address + "/jobs")).text()
        assert 'data-theme="dark"' in html, "the server writes it, before any script runs"
        await page.get_by_role("button", name="Theme: dark").click()
        await expect(page.get_by_role("button", name="Theme: system")).to_be_visible()
        assert await page.evaluate(GROUND) == LIGHT


async def test_a_question_mark_shows_the_keys_and_escape_closes_them(shop: Shop) -> None:
    async with looking(shop, "/queues") as page:
        await page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keys")
        await expect(dialog).to_contain_text("Jump to a job")
        assert await axe_faults(page) == []
        await page.keyboard.press("Escape")
        await expect(dialog).to_be_hidden()
        await page.locator(".jump input").fill("")
        await page.locator(".jump input").press("?")
        await expect(dialog).to_be_hidden()


@pytest.mark.parametrize(
    ("path", "words", "way"),
    [
        ("/nowhere/at/all", "no page at this address", "Overview"),
        ("/queues/nowhere", "no queue nowhere", "All queues"),
        ("/tasks/nowhere", "no task nowhere", "All tasks"),
        ("/workers/nowhere", "no worker nowhere", "All workers"),
        ("/jobs/nowhere", "no job nowhere", "All jobs"),
        ("/batches/nowhere", "no batch nowhere", "All batches"),
        ("/schedules/nowhere", "no schedule nowhere", "All schedules"),
        ("/webhooks/nowhere", "no webhook nowhere", "All webhooks"),
    ],
)
async def test_what_is_missing_is_said_in_words_that_fit(shop: Shop, path: str, words: str, way: str) -> None:
    async with looking(shop, "/queues") as page:
        answer = await page.goto(shop.address + path)
        assert answer is not None
        assert answer.status == 404
        await expect(page.locator("main")).to_contain_text(words)
        await page.locator("main").get_by_role("link", name=way).click()
        await expect(page.locator("h1")).not_to_contain_text("No such")
    shop.heard.clear()  # a browser complains of a page that is missing


async def test_a_bar_is_as_thick_as_its_track_and_numbers_stand_under_their_headings(shop: Shop) -> None:
    await shop.app.limits.set("add", max_concurrency=4)
    await failed(shop, "a number to show")
    async with looking(shop, "/limits") as page:
        heights = await page.locator(".level rect").evaluate_all(
            "(all) => all.map((one) => one.getBoundingClientRect().height)"
        )
        assert heights
        assert set(heights) == {8}
    for path in ("/queues", "/tasks"):
        async with looking(shop, path) as page:
            for column in range(await page.locator("thead th").count()):
                cells: list[Any] = await page.locator(
                    f"tr > :nth-child({column + 1}):not(:has(.unseen)):not(.acts)"
                ).evaluate_all(SIDES)
                assert len(set(cells)) <= 1, (path, column, cells)


async def test_a_batch_with_failures_is_not_a_full_bar(shop: Shop) -> None:
    async with shop.app.batch() as batch:
        batch.add(shop.app.tasks["fragile"].draft("no"))
        batch.add(shop.app.tasks["add"].draft(1))
    async with looking(shop, f"/batches/{batch.id}") as page:
        await expect(page.locator("h1")).to_contain_text("failed")
        whole = await _width(page, ".done .track")
        assert await _width(page, ".done .completed") == pytest.approx(whole / 2, abs=1)
        assert await _width(page, ".done .failed") == pytest.approx(whole / 2, abs=1)


async def _width(page: Page, selector: str) -> float:
    return float(await page.locator(selector).first.evaluate("(one) => one.getBoundingClientRect().width"))


async def test_a_form_says_what_is_wrong_after_typing_and_not_before(shop: Shop) -> None:
    await shop.app.schedules.set("often", Every(minutes=5), shop.app.tasks["add"].draft(1))
    wrong = "form[data-act='schedule.set'] .wrong"
    async with looking(shop, "/schedules") as page:
        async with page.expect_response("**/act"):
            await page.reload()
        assert "".join(await page.locator(wrong).all_text_contents()) == ""
        await page.locator("form [name=expr]").fill("61 * * * *")
        await expect(page.locator(f"{wrong}[data-for=expr]")).to_contain_text("not a cron expression")
        assert sum(map(bool, await page.locator(wrong).all_text_contents())) == 1, (
            "of fields not yet filled in, nothing"
        )
        await page.locator("form [name=expr]").fill("6 * * * *")
        await expect(page.locator(f"{wrong}[data-for=expr]")).to_be_hidden()
    for path, name, text in (
        ("/tasks/add", "payload.a", "1.5"),
        ("/queues/mail", "max_concurrency", "0"),
        ("/limits/add", "max_per_key", "0"),
    ):
        async with looking(shop, path) as page:
            assert "".join(await page.locator("form .wrong").all_text_contents()) == "", path
            await page.locator(f"form [name='{name}']").fill(text)
            await expect(page.locator("form .wrong:not(:empty)")).to_have_count(1)


async def test_an_empty_log_promises_what_is_kept(shop: Shop) -> None:
    job = await shop.app.tasks["add"].options(delay=3600).submit(1)
    async with looking(shop, f"/jobs/{job.id}") as page:
        await expect(page.locator("section[aria-labelledby=log]")).to_contain_text("from the level warning on")


async def test_a_webhook_is_tested_rotated_and_switched_off_and_the_audit_says_by_whom(shop: Shop) -> None:
    made = await shop.app.webhooks.add("https://shop.example/hooks")
    async with looking(shop, "/webhooks") as page:
        await page.get_by_role("link", name="https://shop.example/hooks").click()
        await page.get_by_role("button", name="Send a test").click()
        await expect(page.locator("main")).to_contain_text("webhook.test")
        await page.get_by_role("button", name="Rotate secret").click()
        await sure(page, "Rotate")
        await expect(page.locator("#secret")).to_contain_text("whsec_")
        secret = await page.locator("#secret").text_content() or ""
        await page.get_by_role("button", name="I have it").click()
        assert secret != made.secret
        await page.reload()
        assert secret not in await page.content()
        await page.get_by_role("button", name="Switch off").click()
        await sure(page, "Switch off")
        await expect(page.get_by_role("button", name="Switch on")).to_be_visible()
        await page.goto(shop.address + "/audit?kind=webhook")
        await expect(page.locator("main")).to_contain_text("rotate")
        assert await axe_faults(page) == []
    assert not (await shop.app.webhooks.get(made.webhook.id)).on


async def test_a_key_is_made_shown_once_and_revoked(shop: Shop) -> None:
    async with looking(shop, "/keys") as page:
        await page.locator("details.make summary").click()
        await page.get_by_label("Name").fill("ops")
        for scope in ("read", "act", "admin"):
            await page.get_by_label(scope, exact=True).check()
        await page.get_by_role("button", name="Make the key").click()
        await expect(page.locator("#secret")).to_contain_text("hr_")
    [key] = await shop.app.keys.list()
    assert (key.name, key.scopes, key.created_by) == ("ops", ("read", "act", "admin"), "local")
    await shop.app.keys.revoke("ops")  # this viewer needed none: now every page asks for one
