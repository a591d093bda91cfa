"""What a key and a customer may have."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from headrace import App
from headrace.client.api.filters import Filters
from headrace.client.api.tasks import UnregisteredTask
from headrace.core.auth.api_keys import SCOPES
from headrace.core.status import Verb
from headrace.core.webhooks.delivery import TASK
from headrace.http.problems import Problem
from headrace.hub.auth.caller import LOCAL, Caller
from headrace.hub.auth.quotas import Quotas, SubmitRate
from headrace.hub.options import HubOptions
from headrace.testing import FakeClock
from tests.hub.serving import serving
from tests.support.apps import ENGINES, Sums, url_of
from tests.support.until import until

pytestmark = pytest.mark.every_engine


def test_submits_come_in_bursts_and_then_at_a_rate() -> None:
    rate, spent = SubmitRate(2, burst=3), 0
    for _ in range(3):
        rate.spend(100.0)
    with pytest.raises(Problem) as raised:
        rate.spend(100.0)
    assert (raised.value.status, raised.value.headers["Retry-After"]) == (429, "1")
    assert "2 times a second" in raised.value.details.detail
    rate.spend(100.5)
    for now in (100.6, 100.7, 100.9):
        with pytest.raises(Problem):
            rate.spend(now)
    rate.spend(101.0)
    for _ in range(10):
        try:
            rate.spend(1000.0)
        except Problem:
            break
        spent += 1
    assert spent == 3  # however long it rested


def test_a_slow_rate_says_how_long_to_wait() -> None:
    rate = SubmitRate(0.1, burst=1)
    rate.spend(0.0)
    with pytest.raises(Problem) as raised:
        rate.spend(1.0)
    assert raised.value.headers["Retry-After"] == "9"
    rate.spend(10.0)


def quiet(**more: Any) -> HubOptions:
    """Nobody delivers, so that what is to be told waits."""
    return HubOptions(maintenance=False, webhooks=False, **more)


def key(**bounds: Any) -> Caller:
    return Caller(name="shop", key="hr_1", scopes=frozenset(SCOPES), **bounds)


async def refusal(quotas: Quotas, caller: Caller, priority: int = 50) -> Problem:
    with pytest.raises(Problem) as raised:
        await quotas.admit(caller, "add", priority)
    return raised.value


async def test_a_customer_is_not_as_urgent_as_the_operator() -> None:
    async with App("memory://") as app:
        quotas = Quotas(app, HubOptions())
        await quotas.admit(key(customer="acme"), "add", 89)
        problem = await refusal(quotas, key(customer="acme"), 90)
        assert (problem.status, "at most 89, not 90" in problem.details.detail) == (403, True)
        assert problem.details.errors[0].field == "priority"
        for caller in (key(), LOCAL):
            await quotas.admit(caller, "add", 100)


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_customer_has_so_many_live_jobs_and_no_more(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    app = App(url_of(kind, tmp_path), clock=clock)

    async def submit(customer: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnregisteredTask)
            return await app.submit("add", {}, customer=customer)

    async with app:
        quotas, acme = Quotas(app, HubOptions(customer_jobs=3, customer_messages=4)), key(customer="acme")
        jobs = [await submit("acme") for _ in range(2)]
        await submit("other")
        await jobs[0].cancel()
        for _ in range(2):  # one is live, and these
            await quotas.admit(acme, "add", 50)
        problem = await refusal(quotas, acme)
        assert problem.status == 429
        assert "may have 3 jobs that have not ended" in problem.details.detail
        assert int(problem.headers["Retry-After"]) >= 1
        clock.advance(2)  # those that were let in were not stored, as is seen when they are counted again
        with pytest.raises(Problem):
            await quotas.live(acme, 3)
        await quotas.live(acme, 2)
        await quotas.live(key(), 10)
        await Quotas(app, HubOptions(customer_jobs=None)).live(acme, 10)


async def test_acts_keep_to_the_caps_of_a_customer() -> None:
    async with App("memory://") as app:
        key = (await app.keys.create("acme", ["act"], customer="acme")).text

        @app.task
        async def add() -> None: ...

        jobs = [await add.options(customer="acme").submit() for _ in range(3)]
        for job in jobs[1:]:
            await job.cancel()
        async with serving(app, HubOptions(customer_jobs=1)) as hub:

            async def act(path: str, **body: Any) -> int:
                answer = await hub.client.post(
                    f"/api/jobs/{path}", json=body, headers={"authorization": f"Bearer {key}"}
                )
                return answer.status_code

            assert await act(f"{jobs[0].id}/reprioritise", priority=90) == 403
            assert await act(f"{jobs[0].id}/reprioritise", priority=89) == 200
            assert await act(f"{jobs[1].id}/rerun", priority=90) == 403
            for verb in ("retry", "rerun"):
                assert await act(f"{jobs[1].id}/{verb}") == 429
                assert await act("act", act=verb, filter={"task": "add"}) == 429
            await jobs[0].cancel()
            assert await act("act", act="retry", filter={"task": "add"}) == 429  # three would be live
            assert await app.jobs.count(status="cancelled") == 3


async def test_whoever_submits_too_fast_is_told_when_to_come_back() -> None:
    async with App("memory://") as app:
        slow, other = [(await app.keys.create(name, ["submit", "read"])).text for name in ("slow", "other")]
        async with serving(app, HubOptions(submits_per_second=0.001, submit_burst=2)) as hub:

            async def submit(key: str, path: str = "", **body: Any) -> Any:
                headers = {"authorization": f"Bearer {key}"}
                return await hub.client.post(f"/api/jobs{path}", json=body, headers=headers)

            one: dict[str, Any] = {"task": "add", "payload": {}}
            assert (await submit(slow, **one)).status_code == 201
            assert (await submit(slow, "/bulk", jobs=[one] * 5)).status_code == 200  # is one submit
            for path, body in (("", one), ("/bulk", {"jobs": [one]})):
                answer = await submit(slow, path, **body)
                assert (answer.status_code, answer.headers["content-type"]) == (429, "application/problem+json")
                assert 900 < int(answer.headers["retry-after"]) <= 1000
            assert await app.jobs.count(task="add") == 6
            assert (await submit(other, **one)).status_code == 201
            looked = await hub.client.get("/api/jobs", headers={"authorization": f"Bearer {slow}"})
            assert looked.status_code == 200


async def test_jobs_that_other_acts_make_are_counted_as_submits() -> None:
    sums = Sums("memory://")
    async with sums.app as app:
        key, other = [(await app.keys.create(name, ["act", "admin"])).text for name in ("slow", "other")]
        webhook = (await app.webhooks.add("https://hooks.example/")).webhook
        job = await sums.add.submit(1)
        await job.cancel()
        async with serving(app, quiet(submits_per_second=0.001, submit_burst=4)) as hub:

            async def ask(key: str, path: str, **body: Any) -> tuple[int, Any]:
                headers = {"authorization": f"Bearer {key}"}
                answer = await hub.client.post(f"/api/{path}", json=body, headers=headers)
                return answer.status_code, answer.json()

            assert (await ask(key, f"jobs/{job.id}/rerun"))[0] == 201
            assert (await ask(key, "jobs/act", act="rerun", filter={"task": "add"}))[0] == 200  # one, as a bulk is
            _, sent = await ask(key, f"webhooks/{webhook.id}/test")
            await app.jobs.handle(sent["id"]).resolve(result={})
            assert (await ask(key, f"webhooks/deliveries/{sent['id']}/redeliver"))[0] == 202
            made = await app.jobs.count()
            for path, body in (
                (f"jobs/{job.id}/rerun", {}),
                ("jobs/act", {"act": "rerun", "filter": {"task": "add"}}),
                (f"webhooks/{webhook.id}/test", {}),
                (f"webhooks/deliveries/{sent['id']}/redeliver", {}),
            ):
                assert (await ask(key, path, **body))[0] == 429, path
            assert await app.jobs.count() == made
            assert (await ask(key, "jobs/act", act="rerun", filter={"task": "add"}, dry_run=True))[0] == 200
            assert (await ask(key, f"jobs/{job.id}/retry"))[0] == 200  # which makes none
            assert (await ask(other, f"webhooks/{webhook.id}/test"))[0] == 202


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_dead_receiver_does_not_keep_its_customer_from_submitting(kind: str, tmp_path: Path) -> None:
    sums = Sums(url_of(kind, tmp_path))
    async with sums.app as app:
        acme = (await app.keys.create("acme", ["act", "submit"], customer="acme")).text
        webhook = (await app.webhooks.add("https://hooks.example/", customer="acme")).webhook
        async with serving(app, quiet(customer_jobs=2, customer_messages=2)) as hub:

            async def ask(path: str, **body: Any) -> Any:
                headers = {"authorization": f"Bearer {acme}"}
                return await hub.client.post(f"/api/{path}", json=body, headers=headers)

            for _ in range(2):
                await app.webhooks.test(webhook.id)
            answer = await ask(f"webhooks/{webhook.id}/test")
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
            assert "may have 2 messages of webhooks that wait or are to come; there are 2" in answer.json()["detail"]
            answer = await ask("jobs", task="add", payload={"a": 1})
            assert answer.status_code == 429  # it would make a third
            assert "switch off a webhook that does not answer" in answer.json()["detail"]
            await app.webhooks.set(webhook.id, on=False)
            for _ in range(2):
                assert (await ask("jobs", task="add", payload={"a": 1})).status_code == 201
            answer = await ask("jobs", task="add", payload={"a": 1})
            assert answer.status_code == 429
            assert "may have 2 jobs that have not ended" in answer.json()["detail"]
            ended = await app.webhooks.test(webhook.id)
            await app.jobs.handle(ended.id).resolve(error="no answer")
            for path in (
                f"webhooks/deliveries/{ended.id}/redeliver",
                f"jobs/{ended.id}/retry",
                f"jobs/{ended.id}/rerun",
            ):
                assert (await ask(path)).status_code == 429, path
            filter = {"task": TASK}
            assert (await ask("jobs/act", act="retry", filter=filter)).status_code == 429
            async for _ in app.jobs.where(task=TASK).cancel():
                pass
            await until(lambda: is_let_in(ask(f"webhooks/deliveries/{ended.id}/redeliver")))


async def is_let_in(asking: Awaitable[Any]) -> bool:
    """Whether it is, once deliveries are counted again."""
    return bool((await asking).status_code == 202)


@pytest.mark.parametrize("kind", ENGINES)
async def test_messages_count_where_they_would_come_from(kind: str, tmp_path: Path) -> None:
    sums = Sums(url_of(kind, tmp_path))
    async with sums.app as app:
        acme = (await app.keys.create("acme", ["act", "submit"], customer="acme")).text
        ours = (await app.keys.create("ours", ["submit"])).text
        for number in range(10):
            await app.webhooks.add(f"https://hooks.example/{number}", customer="acme", queues=["default"])
        await app.webhooks.add("https://hooks.example/other", customer="other")
        await app.webhooks.add("https://hooks.example/operator")
        async with serving(app, quiet(customer_messages=95)) as hub:

            async def ask(key: str, path: str, **body: Any) -> Any:
                headers = {"authorization": f"Bearer {key}"}
                return await hub.client.post(f"/api/{path}", json=body, headers=headers)

            one = {"task": "add", "payload": {"a": 1}}
            answer = await ask(acme, "jobs/bulk", jobs=[one] * 5)
            verdicts = answer.json()["verdicts"]
            assert [each["verdict"] for each in verdicts] == ["created"] * 3 + ["refused"] * 2
            problem = verdicts[-1]["problem"]
            assert (problem["status"], problem["type"].rpartition("/")[2]) == (429, "too-many")
            # To each of ten: of the submit, the start and the end.
            assert "may have 95 messages" in problem["detail"]
            assert "there are 90, and this would be 30 more" in problem["detail"]
            assert "have fewer webhooks" in problem["detail"]
            # All that was let in is told, to the operator as well, and nothing else.
            assert await app.jobs.count(task=TASK, customer="acme") == 30
            assert await app.jobs.count(task=TASK) == 33
            # Where nobody listens, nothing is counted; a webhook of its own is one; and others have their own.
            assert (await ask(acme, "jobs", queue="quiet", **one)).status_code == 201
            named = {**one, "queue": "quiet", "webhook": {"url": "https://hooks.example/own", "events": ["ended"]}}
            for _ in range(5):
                assert (await ask(acme, "jobs", **named)).status_code == 201
            assert (await ask(acme, "jobs", **named)).status_code == 429
            assert (await ask(ours, "jobs", **one)).status_code == 201
            job = verdicts[0]["job_id"]
            await app.jobs.handle(job).resolve(error="no")
            assert (await ask(acme, f"jobs/{job}/rerun")).status_code == 429
            assert (await ask(acme, "jobs/act", act="rerun", filter={"task": "add"})).status_code == 429


@pytest.mark.parametrize("kind", ENGINES)
async def test_what_live_jobs_will_still_tell_is_foreseen(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    app = App(url_of(kind, tmp_path), clock=clock)

    @app.task
    async def add() -> None: ...

    @app.task
    async def other() -> None: ...

    async with app:
        acme = (await app.keys.create("acme", ["act", "submit"], customer="acme")).text
        for number in range(10):
            url = f"https://hooks.example/{number}"
            await app.webhooks.add(url, events=["started", "completed"], customer="acme", tasks=["add"])
        async with serving(app, quiet(customer_messages=100)) as hub:

            async def ask(path: str, **body: Any) -> Any:
                headers = {"authorization": f"Bearer {acme}"}
                return await hub.client.post(f"/api/{path}", json=body, headers=headers)

            async def bulk(task: str, **more: Any) -> int:
                clock.advance(1.3)  # what is known is counted anew
                answer = await ask("jobs/bulk", jobs=[{"task": task, "payload": {}, **more}] * 20)
                return sum(one["verdict"] == "created" for one in answer.json()["verdicts"])

            # Nothing is told of a submit, so no message is stored: but each job will make twenty.
            assert [await bulk("add") for _ in range(3)] == [5, 0, 0]
            assert await app.jobs.count(task=TASK) == 0
            assert await bulk("other") == 20  # of which nobody hears
            assert await bulk("other", webhook="https://hooks.example/own") == 0
            await app.worker(burst=True).run(signals=False)
            assert await app.jobs.count(task=TASK, customer="acme") == 100
            assert await bulk("add") == 0


@pytest.mark.parametrize("kind", ENGINES)
async def test_jobs_that_name_webhooks_are_counted_as_long_as_they_live(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    app = App(url_of(kind, tmp_path), clock=clock)

    @app.task
    async def add() -> None: ...

    async with app:
        acme = (await app.keys.create("acme", ["submit"], customer="acme")).text
        async with serving(app, quiet(customer_messages=10)) as hub:
            one = {"task": "add", "payload": {}, "webhook": {"url": "https://hooks.example/", "events": ["ended"]}}

            async def bulk() -> int:
                clock.advance(1.3)
                headers = {"authorization": f"Bearer {acme}"}
                answer = await hub.client.post("/api/jobs/bulk", json={"jobs": [one] * 7}, headers=headers)
                return sum(each["verdict"] == "created" for each in answer.json()["verdicts"])

            # Which events a job has named is not counted: each is taken to tell of its start and its end.
            assert [await bulk() for _ in range(3)] == [7, 0, 0]


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("tasks", [[], ["add"]])
async def test_jobs_that_come_alive_count_for_whoever_hears_of_them(
    kind: str, tasks: list[str], tmp_path: Path
) -> None:
    clock = FakeClock()
    app = App(url_of(kind, tmp_path), clock=clock)

    @app.task
    async def add() -> None: ...

    async with app:
        quotas, acme = Quotas(app, HubOptions(customer_messages=50)), key(customer="acme")
        for number in range(5):
            url = f"https://hooks.example/{number}"
            await app.webhooks.add(url, events=["completed"], customer="acme", tasks=tasks)
        for _ in range(11):
            await (await add.options(customer="acme").submit()).cancel()
        filters: list[Filters] = [{"status": ["cancelled"]}, {"task": "add"}, {"task": ["add", "other"]}]
        for filter in filters:
            mine: Filters = {**filter, "customer": "acme"}
            with pytest.raises(Problem, match="50 messages"):
                await quotas.revive(acme, Verb.RETRY, mine, 11)  # which would make 55
        clock.advance(2)
        await quotas.revive(acme, Verb.RETRY, {"customer": "acme", "queue": "elsewhere"}, 0)
        await quotas.live(acme, 50, task=TASK)  # nothing of what was refused is left


async def test_one_job_that_comes_alive_counts_for_whoever_hears_of_it() -> None:
    async with App("memory://") as app:

        @app.task
        async def add() -> None: ...

        acme = (await app.keys.create("acme", ["act", "submit"], customer="acme")).text
        await app.webhooks.add("https://hooks.example/", events=["started", "ended"], customer="acme")
        own = add.options(customer="acme", webhook={"url": "https://hooks.example/own", "events": ["failed"]})
        job = await own.submit()
        await job.cancel()
        async with serving(app, quiet(customer_messages=3)) as hub:
            for verb in ("retry", "rerun"):
                path, headers = f"/api/jobs/{job.id}/{verb}", {"authorization": f"Bearer {acme}"}
                answer = await hub.client.post(path, json={}, headers=headers)
                assert answer.status_code == 429
                # The message that it was cancelled, and now its start and its end here, its end there.
                assert "there are 1, and this would be 3 more" in answer.json()["detail"], verb


async def test_a_customer_has_ten_webhooks_unless_the_hub_says_otherwise() -> None:
    async with App("memory://") as app:
        acme = (await app.keys.create("acme", ["act", "submit"], customer="acme")).text
        headers = {"authorization": f"Bearer {acme}"}
        for most, options in ((10, {}), (12, {"customer_webhooks": 12})):
            async with serving(app, quiet(**options)) as hub:
                body = {"url": "https://hooks.example/"}
                while (answer := await hub.client.post("/api/webhooks", json=body, headers=headers)).status_code == 201:
                    pass
                assert answer.status_code == 400
                assert f"may have {most} webhooks, and there are {most} already: remove one" in answer.text
                assert len(await app.webhooks.list(customer="acme")) == most


@pytest.mark.parametrize("kind", ENGINES)
async def test_deliveries_are_counted_for_themselves(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    app = App(url_of(kind, tmp_path), clock=clock)

    @app.task
    async def add() -> None: ...

    async with app:
        await app.webhooks.add("https://hooks.example/", events=["submitted", "ended"], customer="acme")
        quotas, acme = Quotas(app, HubOptions(customer_jobs=3, customer_messages=7)), key(customer="acme")
        jobs = [await add.options(customer="acme").submit() for _ in range(3)]
        assert await app.jobs.count(task=TASK, customer="acme") == 3
        await jobs[0].cancel()  # which is told, too; and two are to come
        await quotas.live(acme)
        with pytest.raises(Problem):
            await quotas.live(acme)
        with pytest.raises(Problem):
            await quotas.live(acme, 2, task=TASK)
        async for _ in app.jobs.where(task=TASK).cancel():
            pass
        clock.advance(2)
        await quotas.revive(
            acme, Verb.RETRY, {"customer": "acme"}, 1 + 4
        )  # the job, what was to be told of it, and what will be
        with pytest.raises(Problem):
            await quotas.revive(acme, Verb.RETRY, {"customer": "acme", "task": "add"}, 1)
        with pytest.raises(Problem):
            await quotas.revive(acme, Verb.RETRY, {"customer": "acme", "task": ["add", TASK]}, 3)
