"""Whose is what, for a caller with a customer and for one without."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from starlette.requests import Request

from headrace import App
from headrace.http.problems import Problem, absent
from headrace.hub import Hub
from headrace.hub.auth.caller import LOCAL, Caller
from headrace.hub.auth.customers import customer_of, filters_of, job_of, jobs_of, may_submit
from headrace.hub.server.operation import OperationRequest
from headrace.runtime.clock import SystemDice
from tests.hub.callers import ann

REQUEST = Request({"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""})


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    app = App("memory://")

    @app.task
    async def add(a: int) -> int:
        return a

    async with app:
        yield Hub(app)


def asked(hub: Hub, caller: Caller) -> OperationRequest:
    return OperationRequest(hub=hub, caller=caller, request=REQUEST, path={}, query=None, body=None)


def aged(**age: Any) -> UUID:
    return SystemDice().new_id(datetime.now(UTC) - timedelta(**age))


async def test_a_foreign_job_is_answered_like_an_absent_one(hub: Hub) -> None:
    own = await hub.app.submit("add", {"a": 1}, customer="ann")
    assert (await job_of(asked(hub, ann), str(own.id))).id == own.id
    for options in ({"customer": "bob"}, {}):
        foreign = await hub.app.submit("add", {"a": 1}, **options)  # type: ignore[arg-type]
        with pytest.raises(Problem) as found:
            await job_of(asked(hub, ann), str(foreign.id))
        assert found.value.details == absent(foreign.id, hub.app).details
        assert found.value.status == 404
        assert (await job_of(asked(hub, LOCAL), str(foreign.id))).id == foreign.id


async def test_absent_is_gone_if_the_id_is_older_than_jobs_are_kept(hub: Hub) -> None:
    for id, status in (
        (aged(days=6.9), 404),
        (aged(days=7.1), 410),
        (aged(days=-1), 404),
        (uuid4(), 404),
        (UUID(int=0), 404),
        (UUID("ffffffff-ffff-7fff-bfff-ffffffffffff"), 404),
    ):
        with pytest.raises(Problem) as found:
            await job_of(asked(hub, LOCAL), str(id))
        assert found.value.status == status, id


async def test_a_foreign_job_that_is_older_than_jobs_are_kept_is_gone(hub: Hub) -> None:
    draft = await hub.app.draft("add", {"a": 1}, customer="bob")
    draft.id = aged(days=40)
    await draft.submit()
    assert (await job_of(asked(hub, LOCAL), str(draft.id))).id == draft.id
    with pytest.raises(Problem) as found:
        await job_of(asked(hub, ann), str(draft.id))
    assert found.value.status == 410


@pytest.mark.parametrize("text", ["7", "job-abc123", "\0", "x" * 36, "0" * 33])
async def test_what_is_no_id_is_not_found(hub: Hub, text: str) -> None:
    with pytest.raises(Problem) as found:
        await job_of(asked(hub, LOCAL), text)
    assert found.value.status == 404


async def test_several_jobs_are_all_own_or_the_first_that_is_not_is_named(hub: Hub) -> None:
    own = await hub.app.submit("add", {"a": 1}, customer="ann")
    other = await hub.app.submit("add", {"a": 1}, customer="bob")
    assert [job.id for job in await jobs_of(asked(hub, ann), [own.id, own.id])] == [own.id, own.id]
    with pytest.raises(Problem, match=str(other.id)):
        await jobs_of(asked(hub, ann), [own.id, other.id])


async def test_filters_are_kept_to_the_customer(hub: Hub) -> None:
    assert filters_of(asked(hub, LOCAL), {"customer": ["ann", "bob"]}) == {"customer": ["ann", "bob"]}
    assert filters_of(asked(hub, ann), {"task": "add"}) == {"task": "add", "customer": "ann"}
    for own in (None, "ann", ["ann"], []):
        assert filters_of(asked(hub, ann), {"customer": own}) == {"customer": "ann"}
    for foreign in ("bob", ["ann", "bob"], ""):
        with pytest.raises(Problem) as found:
            filters_of(asked(hub, ann), {"customer": foreign})
        assert found.value.status == 403


async def test_what_is_made_is_the_customers(hub: Hub) -> None:
    assert customer_of(asked(hub, LOCAL), None) is None
    assert customer_of(asked(hub, LOCAL), "bob") == "bob"
    assert customer_of(asked(hub, ann), None) == customer_of(asked(hub, ann), "ann") == "ann"
    with pytest.raises(Problem) as found:
        customer_of(asked(hub, ann), "bob")
    assert found.value.status == 403


async def test_a_key_may_be_bound_to_tasks_and_queues(hub: Hub) -> None:
    bound = Caller(name="k", scopes=LOCAL.scopes, tasks=frozenset({"add"}), queues=frozenset({"default"}))
    may_submit(asked(hub, bound), "add", "default")
    may_submit(asked(hub, LOCAL), "anything", "anywhere")
    for task, queue, field in (("drop", "default", "task"), ("add", "mail", "queue")):
        with pytest.raises(Problem) as found:
            may_submit(asked(hub, bound), task, queue)
        assert (found.value.status, found.value.details.errors[0].field) == (403, field)
