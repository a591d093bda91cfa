from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Retry
from headrace.client.api.tasks import TaskDoc, check_payload, find_task, known_tasks, note_submit, register_tasks
from headrace.core.status import Status
from headrace.engine import Engine, Setting
from headrace.errors import ConfigError, InvalidPayload, UnknownSetting
from headrace.worker.handler import Handler, Policy
from tests.support.apps import url_of


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with App("memory://") as app:
        yield app.session.engine


def resize(image: str, width: int = 800, ratio: float = 1.0, tags: list[str] | None = None, flag: bool = True) -> None:
    pass


def handler(**policy: Any) -> Handler:
    return Handler(resize, aliases=["old"], policy=Policy(**policy))


async def test_workers_record_their_tasks(engine: Engine) -> None:
    assert await register_tasks(engine, [handler(queue="images", retry=Retry(7, backoff=[1, 2]), timeout=None)]) == [
        "resize"
    ]
    doc = await find_task(engine, "resize")
    assert doc is not None
    assert (doc.queue, doc.retry, doc.timeout) == ("images", Retry(7, backoff=[1, 2]), None)
    assert doc.schema["required"] == ["image"]
    assert await find_task(engine, "old") == doc
    assert await find_task(engine, "resiz") is None


async def test_only_what_changed_is_written(engine: Engine) -> None:
    assert await register_tasks(engine, [handler(), handler()]) == ["resize"]
    (before,) = await engine.documents.settings("task:")
    assert await register_tasks(engine, [handler()]) == []
    assert await register_tasks(engine, [handler(priority=5)]) == ["resize"]
    (after,) = await engine.documents.settings("task:")
    assert after.rev > before.rev


async def test_a_faster_writer_is_written_over(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    put, faster = engine.documents.put_setting, [True]

    async def slowly(key: str, value: str | None, expect: int) -> Setting | None:
        if faster.pop() if faster else False:
            await put(key, '{"name":"resize"}', 0)
        return await put(key, value, expect)

    monkeypatch.setattr(engine.documents, "put_setting", slowly)
    assert await register_tasks(engine, [handler(priority=5)]) == ["resize"]
    assert (await known_tasks(engine))["resize"].priority == 5


async def test_what_cannot_be_read_is_not_there(engine: Engine) -> None:
    await engine.documents.put_setting("task:new", '{"format": 9}', 0)
    assert await known_tasks(engine) == {}


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "image"),
        ({"image": "a", "height": 1}, "height"),
        ({"image": 1}, "image"),
        ({"image": "a", "width": "1"}, "width"),
        ({"image": "a", "width": True}, "width"),
        ({"image": "a", "flag": 1}, "flag"),
    ],
)
def test_payloads_are_compared_with_the_schema(payload: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        check_payload(TaskDoc.of(handler()), payload)
    assert caught.value.field == field


def test_payloads_that_fit_pass() -> None:
    check_payload(TaskDoc.of(handler()), {"image": "a", "width": 1, "ratio": 1, "tags": ["a"], "flag": False})
    check_payload(TaskDoc(name="unknown", schema={"properties": {"x": {}}}), {"x": object()})


async def test_who_submitted_a_job_by_hand_is_kept_with_its_task() -> None:
    async with App("memory://") as app:
        await register_tasks(app.session.engine, [handler()])
        before, id = await known_tasks(app.session.engine), app.host.new_id()
        for task in ("resize", "nobody-has-it"):
            await note_submit(app.session.engine, task, id, "ann", app.host.clock.now())
        assert await known_tasks(app.session.engine) == before
        [noted] = await app.store.audit()
        assert (noted.key, noted.verb, noted.by, noted.details) == ("task:resize", "submit", "ann", {"job": str(id)})


@pytest.mark.every_engine
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_paused_task_waits_until_it_is_resumed(kind: str, tmp_path: Path) -> None:
    app = App(url_of(kind, tmp_path))

    @app.task(aliases=["older"], queue="one")
    async def held() -> str:
        return "held"

    @app.task(queue="one")
    async def other() -> str:
        return "other"

    async with app, app.worker():
        assert await held.run() == "held"
        await app.tasks.pause("held", by="ann")
        waits = [await held.submit(), await app.submit("older", {})]
        assert await other.run() == "other"
        assert [(await one.refresh()).status for one in waits] == [Status.QUEUED] * 2
        explained = await waits[0].explain()
        assert "Task 'held' was paused by ann at" in explained
        assert "task_paused" in explained.codes
        [check] = [one for one in await app.store.doctor() if one.name == "tasks" and "'held'" in one.message]
        assert (check.level, check.remedy) == ("warn", "headrace tasks resume held")
        [info] = [one for one in await app.tasks.list() if one.paused]
        assert (info.name, info.paused_by, info.paused_at is not None) == ("held", "ann", True)
        assert await app.limits.list() == [], "a pause is no limit"
        await app.tasks.resume("held", by="bob")
        assert [await one.result(timeout=30) for one in waits] == ["held", "held"]
        assert await app.session.engine.documents.settings("limit:") == []
    acts = [("limit:older", "resume", "bob"), ("limit:held", "resume", "bob")]
    acts += [("limit:older", "pause", "ann"), ("limit:held", "pause", "ann")]
    async with app:
        assert [(one.key, one.verb, one.by) for one in await app.store.audit()] == acts


async def test_a_pause_stays_with_the_limits_of_a_task() -> None:
    app = App("memory://")
    app.task(name="held", max_concurrency=2)(resize)
    async with app:
        await app.tasks.announce()
        await app.tasks.pause("held")
        await app.tasks.announce()  # as a worker that starts does
        [limit] = await app.limits.list()
        assert (limit.max_concurrency, limit.live) == (2, False)
        [info] = await app.tasks.list()
        assert (info.paused, info.paused_by) == (True, None)
        await app.limits.set("held", max_concurrency=1)
        await app.limits.reset("held")
        assert [(one.max_concurrency, one.live) for one in await app.limits.list()] == [(2, False)]
        assert (await app.tasks.list())[0].paused
        await app.limits.forget("held")
        assert await app.limits.list() == []
        assert (await app.tasks.list())[0].paused, "only a resume ends a pause"
        with pytest.raises(UnknownSetting):
            await app.limits.forget("held")
        await app.tasks.resume("held")
        assert not (await app.tasks.list())[0].paused
        await app.limits.set("held", max_concurrency=1)
        await app.tasks.resume("nobody-has-it")
        await app.tasks.pause("nobody-has-it")
        assert {one.key for one in await app.session.engine.documents.settings("limit:")} == {
            "limit:held",
            "limit:nobody-has-it",
        }
        with pytest.raises(ConfigError, match="task's name"):
            await app.tasks.pause("")
