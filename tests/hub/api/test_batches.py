"""Batches over HTTP; those of another customer are not there."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

from headrace import App
from headrace.client.batch import BatchHandle
from tests.hub.api.world import acting_as, world


async def made(app: App, *customers: str | None) -> UUID:
    """A batch with a job of each of these customers."""
    after = await app.draft("resize", {"image": "all.png"})
    batch: BatchHandle = app.batch(on_complete=after)
    async with batch:
        for customer in customers:
            batch.add(await app.draft("resize", {"image": "cat.png"}, customer=customer))
    return batch.id


async def test_batches_are_listed_page_by_page(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        ids = [str(await made(hub.app, None)) for _ in range(3)]
        first = (await hub.client.get("/api/batches?limit=2")).json()
        rest = (await hub.client.get("/api/batches", params={"cursor": first["cursor"]})).json()
        assert [one["id"] for one in first["items"] + rest["items"]] == ids[::-1]
        assert rest["cursor"] is None
        assert (await hub.client.get("/api/batches?cursor=elsewhere")).status_code == 400


async def test_a_batch_is_looked_at_and_cancelled(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        id = await made(hub.app, "ann", "ann")
        found = (await hub.client.get(f"/api/batches/{id}")).json()
        assert (found["customer"], found["tally"]["total"], found["on_complete"]["task"]) == ("ann", 2, "resize")
        jobs = (await hub.client.get(f"/api/batches/{id}/jobs?status=queued&limit=1")).json()
        assert [(job["batch"], job["customer"]) for job in jobs["items"]] == [(str(id), "ann")]
        rest = (await hub.client.get(f"/api/batches/{id}/jobs", params={"cursor": jobs["cursor"]})).json()
        assert (len(rest["items"]), rest["cursor"]) == (1, None)
        assert (await hub.client.get(f"/api/batches/{id}/jobs?status=completed")).json()["items"] == []
        cancelled = (await hub.client.post(f"/api/batches/{id}/cancel")).json()
        assert (cancelled["jobs"], cancelled["batch"]["tally"]["cancelled"]) == (2, 2)
        assert cancelled["batch"]["cancelled_by"] == "local"


async def test_another_customers_batch_is_not_there(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        own, theirs = await made(hub.app, "ann"), await made(hub.app, "bob")
        mixed, nobodys = await made(hub.app, "ann", "bob"), await made(hub.app, None)
        acting_as(hub, "ann")
        assert [one["id"] for one in (await hub.client.get("/api/batches")).json()["items"]] == [str(own)]
        found = (await hub.client.get(f"/api/batches/{own}")).json()
        assert (found["tally"]["total"], found["on_complete"]) == (1, None)  # which is nobody's
        absent = uuid4()
        for id in (theirs, mixed, nobodys, absent, "x"):
            for method, path in (("GET", ""), ("GET", "/jobs"), ("POST", "/cancel")):
                answer = await hub.client.request(method, f"/api/batches/{id}{path}")
                assert answer.status_code == 404
                assert answer.text.replace(str(id), "") == answer.text.replace(str(id), "").replace("bob", "")
        acting_as(hub)
        assert (await hub.client.get(f"/api/batches/{theirs}")).json()["cancelled_at"] is None
        assert len((await hub.client.get("/api/batches")).json()["items"]) == 4
