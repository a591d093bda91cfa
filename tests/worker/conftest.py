"""Every worker test runs on every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.shop import ENGINES, Shop, open_shop


@pytest.fixture(params=ENGINES)
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    """A store, its handlers, and workers with short leases."""
    async with open_shop(request.param, tmp_path) as shop:
        yield shop
