"""The events of batches, over a real server on a real port, as a stream and over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.core.batch import Batch
from headrace.core.change import BatchTally
from headrace.hub import HubOptions
from headrace.hub.live.batches import batch_told, token_of
from tests.core.stand import NOW
from tests.hub.live.doing import Doing
from tests.hub.live.listening import connected, listening
from tests.hub.serving import Served, serving
from tests.support.apps import ENGINES, url_of
from tests.support.until import until


@pytest.fixture(params=ENGINES)
def doing(request: pytest.FixtureRequest, tmp_path: Path) -> Doing:
    return Doing(url_of(request.param, tmp_path))


@asynccontextmanager
async def batch_at(doing: Doing, subscriptions: int = 10) -> AsyncIterator[tuple[Served, UUID]]:
    """A hub with a batch of one job that ends at once, and one that waits for the gate."""
    options = HubOptions(maintenance=False, webhooks=False, subscriptions=subscriptions)
    async with serving(doing.app, options) as hub:
        async with doing.app.batch() as batch:
            batch.add_many([doing.quick.draft(1), doing.work.draft(2)])
        yield hub, batch.id


def test_an_event_has_another_id_for_every_change_that_it_shows() -> None:
    batch = Batch(id=UUID(int=1), created_at=NOW, touched_at=NOW, tally=BatchTally(3, 1))
    others = [
        replace(batch, sealed=True),
        replace(batch, abandoned=True),
        replace(batch, cancelled_at=NOW),
        *(replace(batch, tally=tally) for tally in (BatchTally(4, 1), BatchTally(3, 2), BatchTally(3, 1, 1))),
        replace(batch, tally=BatchTally(3, 1, 0, 1)),
    ]
    assert len({token_of(one) for one in (batch, *others)}) == 8
    assert not batch_told(batch).ended
    assert batch_told(replace(batch, sealed=True, tally=BatchTally(2, 1, 1))).ended


async def test_a_batch_is_followed_to_its_end_as_a_stream(doing: Doing) -> None:
    async with batch_at(doing) as (hub, id):
        path = f"/api/batches/{id}/events"
        async with listening(hub, path) as stream:
            first = await stream.next()
            assert first is not None
            assert (first.name, first.data["batch_id"], first.data["tally"]["total"]) == ("snapshot", str(id), 2)
            async with doing.app.worker():
                one = await stream.until("status")
                assert (one.data["tally"]["completed"], one.data["ended"]) == (1, False)
                doing.gate.set()
                rest = await stream.rest()
        end = rest[-1]
        assert (end.name, end.data["tally"]["completed"], end.data["ended"]) == ("status", 2, True)
        again = await hub.client.get(path, headers={"last-event-id": end.id or ""})
        assert again.status_code == 204, "a browser reconnects no more"
        async with listening(hub, path, last_event_id=one.id or "") as stream:
            [whole] = await stream.rest()
            assert (whole.name, whole.data["ended"]) == ("snapshot", True)
        assert (await hub.client.get("/api/batches/x/events")).status_code == 404


async def test_a_batch_is_followed_to_its_end_over_a_socket(doing: Doing) -> None:
    async with batch_at(doing) as (hub, id), connected(hub) as socket:
        told = await socket.ask("subscribe_batch", batch_id=str(id))
        assert (told["type"], told["batch_id"], told["tally"]["completed"]) == ("batch_status", str(id), 0)
        async with doing.app.worker():
            one = await socket.until("batch_status")
            assert (one["tally"]["completed"], one["ended"]) == (1, False)
            doing.gate.set()
            assert (await socket.until("batch_status", ended=True))["tally"]["completed"] == 2
        await until(lambda: not doing.app.session.batch_watcher._watched)
        assert (await socket.ask("subscribe_batch", batch_id=str(id)))["ended"]


async def test_who_unsubscribes_or_leaves_is_forgotten(tmp_path: Path) -> None:
    doing = Doing(url_of("memory", tmp_path))
    async with batch_at(doing, subscriptions=1) as (hub, id):
        watched = doing.app.session.batch_watcher._watched
        async with connected(hub) as socket:
            for _ in range(2):  # a second time changes nothing
                await socket.ask("subscribe_batch", batch_id=str(id))
            await until(lambda: len(watched) == 1)
            job = await doing.work.submit(1)
            refused = await socket.ask("subscribe_job", job_id=str(job.id))
            assert refused["problem"]["status"] == 429
            assert (await socket.ask("unsubscribe_batch", batch_id=str(id)))["type"] == "unsubscribed"
            await until(lambda: not watched)
            await socket.ask("subscribe_batch", batch_id=str(id))
            await until(lambda: len(watched) == 1)
        await until(lambda: not watched)
        async with listening(hub, f"/api/batches/{id}/events") as stream:
            await stream.next()
            await until(lambda: len(watched) == 1)
        await until(lambda: not watched)
