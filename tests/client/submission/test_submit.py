from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace import App, Duplicate, InvalidPayload, Status
from headrace.client.api.tasks import UnregisteredTask
from headrace.client.submission.by_name import draft_with_warnings
from headrace.errors import ConfigError, InvalidResult, JobNotFound, KeyReused, PayloadTooLarge, TransitionRefused
from headrace.runtime.writes import webhooks
from tests.support.apps import ENGINES, Sums, url_of


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


async def test_by_name_the_local_task_decides(sums: Sums) -> None:
    job = await sums.app.submit("multiply", {"a": 2, "b": 3}, priority=99)
    assert job.last is not None
    assert (job.last.queue, job.last.priority, job.last.payload) == ("slow", 99, {"a": 2, "b": 3})
    with pytest.raises(InvalidPayload, match="a: Expected `int`"):
        await sums.app.submit("multiply", {"a": "2", "b": 3})
    with pytest.raises(InvalidPayload, match="b"):
        await sums.app.submit("multiply", {"a": 2})
    with pytest.raises(InvalidPayload, match="mapping"):
        await sums.app.submit("multiply", [2, 3])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="priority"):
        await sums.app.submit("multiply", {"a": 2, "b": 3}, priority=101)


async def test_by_name_the_store_decides_for_tasks_of_others(tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)
    owner, client = App(url), App(url)

    @owner.task(queue="images", priority=70, dedup="{image}:{width}", aliases=["old"])
    def resize(image: str, width: int = 800) -> None: ...

    async with owner, client:
        await owner.tasks.announce()
        job = await client.submit("resize", {"image": "a"})
        assert job.last is not None
        assert (job.last.queue, job.last.priority, job.last.dedup) == ("images", 70, "a:800")
        assert (await resize.submit("a", width=800)).id == job.id
        assert (await client.submit("old", {"image": "b"})).task == "resize"
        with pytest.raises(InvalidPayload, match="width"):
            await client.submit("resize", {"image": "a", "width": "wide"})
        with pytest.raises(InvalidPayload, match="image"):
            await client.submit("resize", {})


async def test_in_code_a_name_that_nobody_knows_is_a_warning_with_a_guess() -> None:
    """Also from an App with tasks: it may be the task of a service that is deployed after this one."""
    sums = Sums()
    async with sums.app as app:
        with pytest.warns(UnregisteredTask, match="did you mean 'multiply'\\?"):
            handle = await app.submit("multipli", {"a": 1})
        assert (await handle.refresh()).task == "multipli"


async def test_by_name_of_nobodys_task_warns() -> None:
    async with App("memory://", defaults={"queue": "q"}) as app:
        with pytest.warns(UnregisteredTask, match="nobody"):
            job = await app.submit("nobody", {"a": 1, "when": datetime(2026, 1, 1, tzinfo=UTC)})
        assert job.last is not None
        assert (job.last.task, job.last.queue) == ("nobody", "q")
        assert job.last.payload == {"a": 1, "when": "2026-01-01T00:00:00Z"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnregisteredTask)
            with pytest.raises(InvalidPayload):
                await app.submit("nobody", {"a": object()})
            with pytest.raises(InvalidPayload):
                await app.submit("nobody", {"a": float("nan")})
            with pytest.raises(PayloadTooLarge):
                await app.submit("nobody", {"a": "x" * 140_000})


async def test_the_warning_names_the_callers_line() -> None:
    async with App("memory://") as app:
        with pytest.warns(UnregisteredTask) as caught:
            await app.submit("nobody", {})
    assert len(caught) == 1


async def test_jobs_are_found(sums: Sums) -> None:
    await sums.add.map([(i,) for i in range(5)])
    slow = await sums.multiply.submit(1, 2)
    await slow.cancel()
    found = sums.app.jobs
    assert len((await found.list()).items) == 6
    assert [job.id for job in (await found.list(status="cancelled")).items] == [slow.id]
    assert len((await found.list(status=[Status.CANCELLED, "queued"])).items) == 6
    assert len((await found.list(task="add", queue="default")).items) == 5
    assert len((await found.list(tag="t")).items) == 1
    first = await found.list(limit=4)
    rest = await found.list(limit=4, cursor=first.cursor)
    assert (len(first.items), len(rest.items), rest.cursor) == (4, 2, None)
    assert first.items[0].id == slow.id


@pytest.mark.parametrize("wrong", [{"status": "done"}, {"limit": 0}, {"limit": 5000}, {"limit": True}, {"cursor": "x"}])
async def test_bad_questions_are_refused(wrong: dict[str, Any]) -> None:
    async with App("memory://") as app:
        with pytest.raises(ConfigError):
            await app.jobs.list(**wrong)


async def test_many_are_looked_at_in_one_question(sums: Sums) -> None:
    first, second = await sums.multiply.submit(1, 2), await sums.multiply.submit(3, 4)
    nobody = UUID(int=7)
    found = await sums.app.jobs.get_many([second.id, nobody, str(first.id)])
    assert [None if job is None else job.id for job in found] == [second.id, None, first.id]
    many = await sums.app.jobs.get_many([first.id] * 1001)
    assert {job and job.id for job in many} == {first.id}
    assert len(many) == 1001
    assert await sums.app.jobs.get_many([]) == []


async def test_a_task_is_known_by_this_app_or_by_a_worker(tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)
    owner, client = App(url), App(url)

    @owner.task
    def theirs() -> None: ...

    @client.task
    def ours() -> None: ...

    async with owner, client:
        assert [await client.tasks.knows(name) for name in ("ours", "theirs")] == [True, False]
        await owner.tasks.announce()
        assert [await client.tasks.knows(name) for name in ("ours", "theirs", "nobodys")] == [True, True, False]


async def test_resolving_sets_the_end(sums: Sums) -> None:
    good, bad = await sums.add.submit(1), await sums.add.submit(2)
    done = await sums.app.jobs.handle(good.id).resolve(result=7, by="me")
    assert (done.status, await good.result()) == (Status.COMPLETED, 7)
    failed = await sums.app.jobs.handle(bad.id).resolve(error="not worth it")
    assert failed.error is not None
    assert (failed.status, failed.error.message) == (Status.FAILED, "not worth it")
    with pytest.raises(TransitionRefused):
        await sums.app.jobs.handle(good.id).resolve(result=8)
    with pytest.raises(InvalidResult):
        await sums.app.jobs.handle(bad.id).resolve(result=object())
    with pytest.raises(TransitionRefused):
        await sums.app.jobs.handle(good.id).resolve(result=object())
    with pytest.raises(ConfigError, match="not with both"):
        await sums.app.jobs.handle(bad.id).resolve(result=7, error="no")
    (event,) = (await sums.app.jobs.history(good.id)).events
    assert (event.verb, event.by) == ("resolve", "me")


async def test_explaining_knows_of_paused_queues(sums: Sums) -> None:
    job = await sums.add.submit(1)
    await sums.app.queues.pause("default", by="anna")
    assert "paused by anna at" in await sums.app.jobs.explain(job.id)
    (queue,) = await sums.app.queues.list()
    assert (queue.paused, queue.paused_by, queue.paused_at is not None) == (True, "anna", True)
    await sums.app.queues.resume("default")
    (queue,) = await sums.app.queues.list()
    assert (queue.paused, queue.paused_by, queue.paused_at) == (False, None, None)


async def test_what_is_not_there_is_not_found(sums: Sums) -> None:
    nobody = UUID(int=1)
    for verb in (sums.app.jobs.get, sums.app.jobs.history, sums.app.jobs.explain):
        with pytest.raises(JobNotFound):
            await verb(nobody)
    for act in (sums.app.jobs.handle(nobody).cancel, sums.app.jobs.handle(nobody).rerun):
        with pytest.raises(JobNotFound):
            await act()


@pytest.mark.parametrize("name", ["", " add", 7])
async def test_a_name_no_task_can_have_is_refused(sums: Sums, name: Any) -> None:
    with pytest.raises(ConfigError, match="not a task name"):
        await sums.app.submit(name, {"a": 1})


async def test_a_request_key_makes_one_job_of_a_request(sums: Sums) -> None:
    asked = sums.add.options(request_key="r", customer="acme", dedup="d", on_duplicate="raise")
    first = await asked.submit(1, 2)
    assert not first.duplicate
    again = await asked.submit(1, b=2)
    assert (again.id, again.duplicate) == (first.id, True)
    with pytest.raises(KeyReused, match=f"'r' of task 'add'.*{first.id} .*a key of its own") as caught:
        await asked.submit(1, 3)
    assert caught.value.job.id == first.id
    with pytest.raises(Duplicate):
        await asked.options(request_key="other").submit(1, 2)
    assert (await sums.app.submit("add", {"b": 2, "a": 1}, request_key="r", customer="acme")).id == first.id
    assert (await sums.app.submit("add", {"b": 2, "a": 1}, request_key="r")).id != first.id


async def test_each_of_a_map_has_its_own_payload_under_a_request_key(sums: Sums) -> None:
    asked = sums.add.options(request_key="r")
    one, two = await asked.map([(1, 1), (1, 1)])
    assert (two.id, one.duplicate, two.duplicate) == (one.id, False, True)
    with pytest.raises(KeyReused):
        await asked.map([(1, 1), (2, 2)])


def test_a_request_key_belongs_to_one_submit() -> None:
    app = App("memory://")
    with pytest.raises(ConfigError, match="request_key belongs to one submit"):
        app.task(request_key="r")(lambda: None)
    with pytest.raises(ConfigError, match="request_key cannot be a default"):
        App("memory://", defaults={"request_key": "r"})


async def test_each_of_many_is_stored_for_itself(sums: Sums) -> None:
    first = await sums.add.options(dedup="held").submit(0)
    missing = sums.app.host.new_id()
    drafts = [
        sums.add.draft(1),
        sums.add.options(dedup="held").draft(2),
        sums.add.options(dedup="held", on_duplicate="raise").draft(3),
        sums.add.options(request_key="r").draft(4),
        sums.add.options(request_key="r").draft(5),
        sums.add.options(after=[missing]).draft(6),
        sums.add.options(after=[first]).draft(7),
        sums.add.options(dedup="new").draft(8),
        sums.add.options(dedup="new", on_duplicate="replace").draft(9),
    ]
    found = await sums.app.submit_each(drafts)
    kinds = [type(one) if isinstance(one, Exception) else one.duplicate for one in found]
    assert kinds == [False, True, Duplicate, False, KeyReused, JobNotFound, False, False, True]
    assert [one.id for one in found if not isinstance(one, Exception)] == [
        drafts[0].id,
        first.id,
        drafts[3].id,
        drafts[6].id,
        drafts[7].id,
        drafts[7].id,
    ]
    assert (await sums.app.jobs.get(drafts[7].id)).payload["a"] == 9
    assert (await sums.app.session.engine.records.ledger()).accepted == 5
    again = await sums.app.submit_each(drafts[:1])
    assert [one.id for one in again if not isinstance(one, Exception)] == [drafts[0].id], "by its id"
    assert await sums.app.submit_each([]) == []


async def test_more_than_one_write_holds(sums: Sums) -> None:
    found = await sums.app.submit_each([sums.add.draft(number) for number in range(1500)])
    handles = [one for one in found if not isinstance(one, Exception)]
    assert [one.last.payload["a"] for one in handles if one.last is not None] == list(range(1500))
    assert (await sums.app.session.engine.records.ledger()).accepted == 1500


async def test_what_would_be_a_warning_can_be_had_as_text() -> None:
    async with Sums().app as app:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            draft, told = await draft_with_warnings(app, "ad", {"a": 1}, {"priority": 7})
            assert (draft.task, draft.options["priority"]) == ("ad", 7)
            [text] = told
            assert "no worker has registered a task named 'ad'" in text
            assert "did you mean 'add'?" in text
            assert (await draft_with_warnings(app, "add", {"a": 1}, {}))[1] == ()


async def test_of_each_of_many_its_webhooks_are_told(sums: Sums) -> None:
    """The deliveries of a job are stored with it, and none with one that is not stored."""
    await sums.app.webhooks.add("https://example.com/all", events=["submitted"])
    hook = {"url": "https://example.com/own", "events": ["submitted"]}
    drafts = [
        sums.add.draft(1),
        sums.add.options(webhook=hook).draft(2),
        sums.add.options(dedup="k").draft(3),
        sums.add.options(dedup="k").draft(4),
        sums.add.options(after=[sums.app.host.new_id()]).draft(5),
    ]
    found = await sums.app.submit_each(drafts)
    kinds = [type(one) if isinstance(one, Exception) else one.duplicate for one in found]
    assert kinds == [False, False, False, True, JobNotFound]
    told = (await sums.app.jobs.list(queue="headrace.webhooks")).items
    about = sorted(tag for one in told for tag in one.tags if not tag.startswith("wh_"))
    assert about == sorted(str(id) for id in (drafts[0].id, drafts[1].id, drafts[1].id, drafts[2].id))


async def test_one_whose_webhook_cannot_be_kept_keeps_no_other_from_being_stored(
    sums: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_WEBHOOK_ADDRESSES", 1)
    urls = [None, "https://example.com/1", "https://example.com/2", "https://example.com/1"]
    drafts = [sums.add.draft(1) if url is None else sums.add.options(webhook=url).draft(1) for url in urls]
    found = await sums.app.submit_each(drafts)
    assert [type(one) if isinstance(one, Exception) else one.id for one in found] == [
        drafts[0].id,
        drafts[1].id,
        ConfigError,
        drafts[3].id,
    ]
    assert await sums.app.jobs.get_many([drafts[2].id]) == [None]
