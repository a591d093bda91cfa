"""Secrets that all processes of a store share."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace import App
from headrace.client.api.store import shared_secret
from tests.support.apps import ENGINES, url_of

pytestmark = pytest.mark.every_engine


@pytest.mark.parametrize("kind", ENGINES)
async def test_whoever_asks_first_makes_it_and_all_get_the_same(kind: str, tmp_path: Path) -> None:
    url = url_of(kind, tmp_path)
    first, second = App(url), App(url)
    async with first, second:
        found = await asyncio.gather(
            *(shared_secret(app.session.vault, "door") for app in (first, second) for _ in range(5))
        )
        per_store = 2 if kind == "memory" else 1  # each App has a memory of its own
        assert len(set(found)) == per_store
        assert len(found[0]) == 32
        assert await shared_secret(first.session.vault, "other") != found[0]
        assert found[0].hex() not in str(await first.store.audit()), "it is told to nobody else"
