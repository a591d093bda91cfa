"""Jobs in Django's admin, in a real browser: who may look and act, and that nothing hostile gets out of its place."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.async_api import Browser, Page, expect

from tests.contrib.django.sites import PROJECT, Site, postgres
from tests.endpoints.processes import answering, started
from tests.support.screens.browser import browsing
from tests.support.servers.daemons import free_port

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("django-admin")]

HOSTILE = (
    "<img src=x onerror=\"document.title='taken'\"></pre></td><script>document.title='taken'</script>{{ job }}&amp;"
)
WORDS = HOSTILE.replace("'", "")[:90]
"""As the name of a queue."""

PREPARE = """
import warnings
from django.contrib.auth.models import Permission, User
from headrace import Retry
from shop.tasks import later, send
from shop.urls import divide, order
User.objects.create_superuser("root", "", "root")
for name, codes in {"viewer": ["view_job"], "actor": ["view_job", "change_job"], "nobody": []}.items():
    user = User.objects.create_user(name, "", name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="headrace", codename__in=codes))
failing = divide.task.options(retry=Retry(0)).submit_sync(by=0)
hostile = order.task.options(queue=WORDS, customer=HOSTILE, tags=[WORDS]).submit_sync(
    shop=HOSTILE, order={"item": HOSTILE, "count": 2}
)
many = [later.options(delay=100000, queue="slow").submit_sync(number).id for number in range(60)]
print(json.dumps({"failing": str(failing.id), "hostile": str(hostile.id), "slow": str(many[0])}))
"""


expect.set_options(timeout=60_000)


class Shop(NamedTuple):
    """The project on a server, with jobs in it."""

    site: Site
    address: str
    ids: dict[str, str]

    def job(self, name: str) -> str:
        """The address of the page of one of the jobs."""
        return f"{self.address}/admin/headrace/job/{self.ids[name]}/change/"

    @property
    def list(self) -> str:
        """The address of the list."""
        return f"{self.address}/admin/headrace/job/"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A server of Django's own, and a worker; the jobs of before have been worked on."""
    folder: Path = tmp_path_factory.mktemp("admin")
    more = postgres() if request.param == "postgres" else {}
    site, port = Site(folder, {**more, "SHOP_ADMIN": "yes"}), free_port()
    manage = [sys.executable, str(PROJECT / "manage.py")]
    site.manage("migrate", "-v0")
    site.manage("headrace", "migrate")
    ids = site.script(f"HOSTILE, WORDS = {HOSTILE!r}, {WORDS!r}\n" + PREPARE)
    site.manage("headrace", "worker", "--burst", "--queues", "default")
    with ExitStack() as stack:
        server = [*manage, "runserver", "--noreload", str(port)]
        process = stack.enter_context(started(server, folder, site.environment))
        address = f"http://127.0.0.1:{port}"
        answering(process, f"{address}/admin/login/")
        yield Shop(site, address, ids)


@asynccontextmanager
async def signed_in(browser: Browser, shop: Shop, user: str, **how: Any) -> AsyncIterator[Page]:
    """A page of somebody who has signed in."""
    context = await browser.new_context(**how)
    page = await context.new_page()
    page.set_default_timeout(60_000)
    faults = list[str]()
    page.on("pageerror", lambda error: faults.append(str(error)))
    await page.goto(f"{shop.address}/admin/login/?next=/admin/")
    await page.fill("#id_username", user)
    await page.fill("#id_password", user)
    await page.click("input[type=submit]")
    await page.wait_for_url(f"{shop.address}/admin/")
    yield page
    assert not faults
    await context.close()


async def test_jobs_are_listed_filtered_and_found(shop: Shop) -> None:
    async with browsing() as browser, signed_in(browser, shop, "viewer") as page:
        await page.locator("#content-main").get_by_role("link", name="Jobs", exact=True).click()
        rows = page.locator("#result_list tbody tr")
        await expect(rows).to_have_count(50)
        await page.get_by_role("link", name="Older").click()
        await expect(rows).to_have_count(12)
        await page.get_by_role("link", name="Newest").click()
        await expect(rows).to_have_count(50)

        filters = page.locator("#changelist-filter")
        await filters.get_by_role("link", name="failed", exact=True).click()
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("divide")
        await filters.get_by_role("link", name="slow", exact=True).click()
        await expect(page.get_by_text("No jobs match.")).to_be_visible()
        await page.get_by_role("link", name="Clear all filters").click()
        await filters.get_by_role("link", name="order", exact=True).click()
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text(shop.ids["hostile"])

        await page.fill("#searchbar", shop.ids["slow"])
        await page.get_by_role("button", name="Search").click()
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("later")
        await page.fill("#searchbar", "ZeroDivisionError")
        await page.get_by_role("button", name="Search").click()
        await expect(page.get_by_text("No jobs match.")).to_be_visible()  # the filter by task is kept
        for wrong in ("?cursor=nonsense", "?status=nonsense"):
            answer = await page.goto(shop.list + wrong)
            assert answer is not None
            assert answer.status == 400
            await expect(page.locator(".errornote")).to_be_visible()
        await page.goto(f"{shop.list}00000000-0000-7000-8000-000000000000/change/")
        await expect(page.get_by_text("There is no job 00000000-0000-7000-8000-000000000000.")).to_be_visible()
        await page.goto(f"{shop.list}nonsense/change/")
        await expect(page.get_by_text("There is no job nonsense.")).to_be_visible()


async def test_a_job_is_shown_with_all_that_happened(shop: Shop) -> None:
    async with browsing() as browser, signed_in(browser, shop, "viewer", java_script_enabled=False) as page:
        await page.goto(shop.job("failing"))
        await expect(page.locator(".field-status .readonly")).to_contain_text("failed")
        await expect(page.locator(".field-error")).to_contain_text("ZeroDivisionError: division by zero")
        await expect(page.locator(".field-payload")).to_contain_text('"by": 0')
        await expect(page.locator("#attempts tbody tr")).to_have_count(1)
        await expect(page.locator("#attempts")).to_contain_text("failed")
        told = await page.locator("#timeline tbody tr td:nth-child(2)").all_inner_texts()
        assert told[:2] == ["submitted", "attempt 1 started"]
        assert told[2].startswith("attempt 1 failed (")
        assert told[-1].startswith("failed (")
        await expect(page.locator(".why")).to_contain_text("ZeroDivisionError")


async def test_nothing_hostile_gets_out_of_its_place(shop: Shop) -> None:
    async with browsing() as browser, signed_in(browser, shop, "root") as page:
        await page.goto(shop.job("hostile"))
        await expect(page.locator(".field-customer .readonly")).to_have_text(HOSTILE)
        await expect(page.locator(".field-queue .readonly")).to_have_text(WORDS)
        await expect(page.locator(".field-payload pre")).to_contain_text("onerror")
        await page.goto(shop.list)
        await page.locator("#changelist-filter").get_by_role("link", name=WORDS, exact=True).click()
        await expect(page.locator("#result_list tbody tr")).to_have_count(1)
        await expect(page.locator("#result_list .field-queue")).to_have_text(WORDS)
        await page.fill("#searchbar", HOSTILE)
        await page.get_by_role("button", name="Search").click()
        await expect(page.locator("#searchbar")).to_have_value(HOSTILE)
        assert await page.title() != "taken"
        assert await page.locator("#content img, #content script").count() == 0


async def test_who_may_only_look_can_only_look(shop: Shop) -> None:
    async with browsing() as browser:
        async with signed_in(browser, shop, "viewer") as page:
            await page.goto(shop.list)
            assert await page.locator("[name=_selected_action], [name=action]").count() == 0
            await page.goto(shop.job("failing"))
            assert await page.locator("#content button").count() == 0
            for address in (shop.list, shop.job("failing")):
                cookie = next(one for one in await page.context.cookies() if one["name"] == "csrftoken")
                form: dict[str, str | float | bool] = {"action": "retry", "_selected_action": shop.ids["failing"]}
                headers = {"X-CSRFToken": cookie["value"], "Referer": address}
                assert (await page.request.post(address, form=form, headers=headers)).status == 403
                form |= {"action": "cancel", "sure": "yes"}
                assert (await page.request.post(address, form=form)).status == 403, "without a token nobody may"
        async with signed_in(browser, shop, "nobody") as page:
            for address in (shop.list, shop.job("failing")):
                answer = await page.goto(address)
                assert answer is not None
                assert answer.status == 403
        page = await browser.new_page()
        await page.goto(shop.list)
        assert "/admin/login/" in page.url


async def test_who_may_act_acts(shop: Shop) -> None:
    async with browsing() as browser, signed_in(browser, shop, "actor", java_script_enabled=False) as page:
        status = page.locator(".field-status .readonly")
        await page.goto(shop.job("failing"))
        await page.get_by_role("button", name="Rerun").click()
        await expect(page.locator(".messagelist .success")).to_have_text("1 job rerun.")
        await page.get_by_role("button", name="Retry").click()
        await expect(status).to_have_text("queued")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.get_by_role("heading", name="Cancel this job?")).to_be_visible()
        await page.get_by_role("link", name="No, take me back").click()
        await expect(status).to_have_text("queued")
        await page.get_by_role("button", name="Cancel").click()
        await page.get_by_role("button", name="Yes, I’m sure").click()
        await expect(status).to_contain_text("cancelled")
        timeline = page.locator("#timeline")
        await expect(timeline).to_contain_text("retry")
        await expect(timeline).to_contain_text("actor")
        shop.site.manage("headrace", "worker", "--burst", "--queues", "default")

        await page.goto(f"{shop.list}?status=failed")
        await page.locator("[name=_selected_action]").first.check()
        await page.select_option("[name=action]", "discard")
        await page.get_by_role("button", name="Go").click()
        await page.get_by_role("button", name="Yes, I’m sure").click()
        await expect(page.locator(".messagelist .success")).to_have_text("1 job discarded.")
        await expect(page.locator("#result_list")).to_have_count(0)

        await page.goto(f"{shop.list}?queue=slow")
        boxes = page.locator("[name=_selected_action]")
        for place in range(3):
            await boxes.nth(place).check()
        await page.select_option("[name=action]", "cancel")
        await page.get_by_role("button", name="Go").click()
        await expect(page.get_by_role("heading", name="Cancel these 3 jobs?")).to_be_visible()
        await page.get_by_role("button", name="Yes, I’m sure").click()
        await expect(page.locator(".messagelist .success")).to_have_text("3 jobs cancelled.")
        await boxes.first.check()
        await page.select_option("[name=action]", "discard")
        await page.get_by_role("button", name="Go").click()
        await page.get_by_role("button", name="Yes, I’m sure").click()
        await expect(page.locator(".messagelist .error")).to_contain_text("cancelled")
        await page.goto(f"{shop.address}/admin/")
        await expect(page.locator("#recent-actions-module")).to_contain_text(shop.ids["failing"])


def test_django_finds_no_table_to_make_or_to_read(shop: Shop) -> None:
    assert "No changes" in shop.site.manage("makemigrations", "--check", "--dry-run")
    assert shop.site.manage("dumpdata", "headrace").strip() == "[]"
    assert shop.site.manage("dumpdata", "--all", "headrace").strip() == "[]"
    shop.site.manage("check", "--fail-level", "WARNING", "--tag", "admin", "--tag", "models")
