"""One browser for all tests of the dashboard, and one shop on each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.dashboard.shop import Shop, opened
from tests.support.apps import url_of
from tests.support.screens.browser import browsing

expect.set_options(timeout=30_000)  # machines may be slow


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["sqlite", "postgres"])
async def shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> AsyncIterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    async with opened(url_of(request.param, folder), browser) as made:
        yield made


@pytest.fixture
def quiet(shop: Shop) -> Iterator[None]:
    """No page complains of anything."""
    shop.heard.clear()
    yield
    assert shop.heard == []
