"""Filters as they are said over HTTP."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace import App
from headrace.client.api.filters import Filters
from headrace.hub.api.filters import JobFilters
from headrace.hub.operations import OPERATIONS
from headrace.hub.server.operation import Operation
from tests.hub.live.doing import Doing
from tests.hub.live.listening import listening
from tests.hub.serving import serving
from tests.support.until import until


def test_every_filter_of_an_app_can_be_said() -> None:
    assert {*JobFilters.__struct_fields__} == {*Filters.__annotations__, "type", "customer_id"}


PAGES = {"task": "type", "customer": "customer_id"}
"""What the page calls differently."""


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.query is not None], ids=lambda one: one.name)
def test_every_filter_is_taken_in_both_spellings(operation: Operation) -> None:
    assert operation.query is not None
    fields = {one.name: str(one.type) for one in msgspec.structs.fields(operation.query)}
    if "status" in fields:
        assert "StatusWord" in fields["status"]
    for ours, theirs in PAGES.items() if "status" in fields else ():
        assert (ours in fields) == (theirs in fields)
        assert fields.get(ours) == fields.get(theirs)


async def test_running_jobs_are_found_by_the_words_of_the_page(tmp_path: Path) -> None:
    doing = Doing(f"sqlite:///{tmp_path}/jobs.db")
    async with serving(doing.app) as hub, doing.app.worker():
        async with doing.app.batch() as batch:
            batch.add(doing.work.draft(1))
        await until(lambda: is_begun(doing.app))
        [job] = (await hub.client.get(f"/api/batches/{batch.id}/jobs?status=in_progress")).json()["items"]
        assert (job["task"], job["status"]) == ("work", "running")
        for path in ("/api/failures?status=in_progress&type=work", "/api/webhooks/deliveries?status=in_progress"):
            answer = await hub.client.get(path)
            assert (answer.status_code, answer.json()["items"]) == (200, [])
        doing.gate.set()


async def is_begun(app: App) -> bool:
    return await app.jobs.count(status="running") > 0


async def test_the_feed_takes_the_words_of_the_page(tmp_path: Path) -> None:
    doing = Doing(f"sqlite:///{tmp_path}/jobs.db")
    async with serving(doing.app) as hub:
        path = "/api/events?type=work&customer_id=ann&status=in_progress"
        async with listening(hub, path) as stream, doing.app.worker():
            for task, customer in ((doing.quick, "ann"), (doing.work, "bob"), (doing.work, "ann")):
                await task.options(customer=customer).submit(1)
            event = await stream.next()
            assert event is not None
            assert [event.data[name] for name in ("task", "customer", "status")] == ["work", "ann", "running"]
            doing.gate.set()


async def test_what_is_said_twice_must_be_the_same_everywhere(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        for path in ("/api/events?type=a&task=b", "/api/failures?customer=a&customer_id=b"):
            answer = await hub.client.get(path)
            assert (answer.status_code, answer.json()["detail"][-11:]) == (400, "say it once")
