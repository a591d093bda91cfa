"""What a change did not insert is logged and counted, and is in the history of its job."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from headrace.contrib.prometheus import HeadraceCollector
from headrace.core.change import LeftOut
from headrace.core.job import Spec
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.submission import submit
from headrace.runtime.writes.omissions import COUNTED
from tests.support.apps import ENGINES, Sums, url_of


@pytest.mark.parametrize("kind", ENGINES)
async def test_it_is_logged_counted_and_on_record(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COUNTED, "lost", 0)
    shop = Sums(url_of(kind, tmp_path))
    async with shop.app as app:
        registry = CollectorRegistry()
        registry.register(HeadraceCollector(app, store=False))
        job = (await shop.add.submit(1)).last
        assert job is not None
        now = app.host.clock.now()
        spec = Spec(task="lost", created_at=now, after=(uuid4(),))
        lost = submit(app.host.new_id(now), spec, "{}", now, available_at=now, not_after=None, waits=1)
        change = actions.cancel(job, now, app.session.engine.rules)
        assert change is not None
        await app.session.writer.apply(replace(change, inserts=(lost,)))
        [line] = [one for one in caplog.records if one.name == "headrace.changes"]
        assert str(lost.id) in line.getMessage()
        assert COUNTED["lost"] == 1
        assert b'headrace_left_out_total{task="lost"} 1.0' in generate_latest(registry)
        events = (await app.jobs.history(job.id)).events
        assert LeftOut.VERB in [event.verb for event in events]


def test_the_metric_is_there_from_the_first() -> None:
    registry = CollectorRegistry()
    registry.register(HeadraceCollector(Sums().app, store=False))
    assert b'headrace_left_out_total{task="headrace.deliver"}' in generate_latest(registry)
