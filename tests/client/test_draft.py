from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace import App, Draft
from headrace.core.status import Status
from headrace.errors import ConfigError
from tests.support.apps import Sums

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_draft_needs_no_open_app_and_keeps_its_id() -> None:
    draft = Sums().multiply.draft(1, b=2)
    assert isinstance(draft, Draft)
    assert (draft.task, draft.payload_text) == ("multiply", '{"a":1,"b":2}')
    one, two = draft._job(NOW), draft._job(NOW + timedelta(hours=1))
    assert one.id == two.id == draft.id
    assert (one.queue, one.priority, one.created_at) == ("slow", 20, NOW)


def test_ids_sort_in_the_order_drafts_were_made() -> None:
    sums = Sums()
    ids = [sums.add.draft(i).id for i in range(100)]
    assert ids == sorted(ids)


def test_times_are_placed_when_it_is_submitted() -> None:
    task = Sums().add
    delayed = task.options(delay=60).draft(1)._job(NOW)
    assert (delayed.status, delayed.available_at) == (Status.SCHEDULED, NOW + timedelta(minutes=1))
    past = task.options(not_before=NOW - timedelta(days=1), not_after=NOW + timedelta(days=1)).draft(1)._job(NOW)
    assert (past.status, past.available_at, past.not_after) == (Status.QUEUED, NOW, NOW + timedelta(days=1))


@pytest.mark.parametrize("option", ["delay", "not_before", "not_after"])
def test_a_draft_for_other_moments_must_not_name_one(option: str) -> None:
    value = 5.0 if option == "delay" else NOW
    draft = Sums().add._with_options({option: value}).draft(1)
    with pytest.raises(ConfigError, match=option):
        draft._refuse_times("why")


async def test_a_draft_by_name() -> None:
    async with App("memory://") as app:
        with pytest.warns(UserWarning, match="elsewhere"):
            draft = await app.draft("elsewhere", {"a": 1}, delay=5)
        assert (await draft.submit()).status is Status.SCHEDULED
