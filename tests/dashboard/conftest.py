"""One browser for all tests of the dashboard, and one shop on each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.dashboard.shop import Shop, opened
from tests.support.apps import url_of
from tests.support.browser import browsing


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> AsyncIterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    async with opened(url_of(request.param, folder), browser) as made:
        yield made
