"""Sessions at the dashboard."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace import App
from headrace.client.api.dashboard_sessions import DashboardSessions
from tests.support.apps import url_of

pytestmark = pytest.mark.every_engine


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_many_log_in_with_one_key_at_once(store: str, tmp_path: Path) -> None:
    async with App(url_of(store, tmp_path)) as app:
        made, digest = await app.keys.create("ops", ["read"]), "d" * 64
        texts = await asyncio.gather(*(DashboardSessions(app).begin(made.key.prefix, digest) for _ in range(40)))
        assert len(set(texts)) == 40
        assert all([await DashboardSessions(app).find(text, digest) for text in texts])
        await asyncio.gather(*(DashboardSessions(app).end(text) for text in texts))
        assert not await app.session.engine.documents.settings("sessions:")
