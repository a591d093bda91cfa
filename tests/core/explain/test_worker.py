"""Why a worker gets nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from headrace.core.explain.worker import explain_worker, queues_to_look_at
from headrace.core.job import Job
from headrace.core.limits.rate import Rate, spend
from headrace.core.limits.selection import Usage
from headrace.core.limits.settings import counted_by, group_of, limits_of
from headrace.core.matching.customers import Customers
from headrace.core.query import Count
from headrace.core.status import Status
from headrace.engine import Beat, WorkerInfo, WorkerRow
from tests.core.stand import NOW, WORKER, at, submitted


def row(*, state: str = "running", busy: int = 0, alive: bool = True, silent: bool = False, **info: Any) -> WorkerRow:
    fields: dict[str, Any] = {"tasks": ("work",), "concurrency": 4} | info
    made = WorkerInfo(id=WORKER, host="mill", pid=1, started_at=NOW, **fields)
    since = NOW if silent else None
    return WorkerRow(made, Beat(state=state, busy=busy), 1, NOW, alive, busy, since)


def queued(queue: str = "default", jobs: int = 1) -> Count:
    return Count(queue, Status.QUEUED, jobs, NOW)


def told(
    worker: WorkerRow,
    *jobs: Job,
    counts: list[Count] | None = None,
    held: int = 0,
    holding: Sequence[Job] = (),
    **settings: str,
) -> Any:
    limits = limits_of((key.replace("_", ":"), text) for key, text in settings.items())
    usage = Usage(held={("queue", "default"): held})
    counts = counts or [queued(jobs=len(jobs))] * bool(jobs)
    return explain_worker(worker, at(60), counts, jobs, limits, usage, holding)


@pytest.mark.parametrize(
    ("worker", "code", "text"),
    [
        (row(), "worker_free", "It is alive, and 0 of its 4 slots are busy."),
        (row(busy=1), "worker_free", "1 of its 4 slots is busy"),
        (row(busy=4), "worker_full", "All its slots are busy (4 of 4)"),
        (row(state="draining"), "worker_draining", "It is stopping"),
        (row(state="blocked"), "worker_blocked", "Its event loop does not run"),
        (row(alive=False), "worker_dead", "It is dead, or has left"),
        (row(alive=False, silent=True), "worker_silent", "It was last heard of 60 s ago"),
    ],
)
def test_how_it_is_itself(worker: WorkerRow, code: str, text: str) -> None:
    explained = told(worker)
    assert explained.codes == (code, "nothing_queued")
    assert text in explained
    assert "No job is queued." in explained


def test_queues_that_it_does_not_serve_and_queues_that_are_paused() -> None:
    worker, counts = row(queues=("a", "b")), [queued("a"), queued("b", 2), queued("c", 3), queued("d", 1000)]
    explained = told(worker, counts=counts, queue_b='{"paused":true}')
    assert explained.codes == ("worker_free", "queue_not_served", "queue_paused")
    assert "1,003 jobs are in queues that it does not serve: 'c', 'd'; it serves 'a', 'b'." in explained
    assert "2 jobs are in queues that are paused: 'b'." in explained
    limits = limits_of([("queue:b", '{"paused":true}')])
    assert queues_to_look_at(worker, counts, limits) == ["a"]


def test_tasks_that_are_paused() -> None:
    jobs = [submitted(), submitted(), submitted(task="other")]
    explained = told(row(tasks=("work", "other")), *jobs, limit_work='{"paused":true}')
    assert explained.codes == ("worker_free", "looked_at", "task_paused", "may_take")
    assert "2 jobs are of tasks that are paused: 'work'." in explained
    assert "Nothing keeps it from 1 job" in explained


def test_tasks_that_it_lacks() -> None:
    jobs = [submitted(task=f"t{number}") for number in range(7)]
    explained = told(row(), *jobs, submitted())
    assert explained.codes == ("worker_free", "looked_at", "no_task", "may_take")
    assert "7 jobs are of tasks that it does not have: 't0', 't1', 't2', 't3', 't4' and 2 more." in explained
    assert "Nothing keeps it from 1 job" in explained
    assert "8 queued jobs were looked at" in explained
    assert "1 queued job was looked at" in told(row(), submitted())


def test_requirements_that_it_does_not_meet() -> None:
    worker = row(offers={"gpu_memory_gb": 24})
    explained = told(worker, submitted(requires={"gpu_memory_gb": 40}), submitted(requires={"region": "eu"}))
    assert explained.codes == ("worker_free", "looked_at", "requirements_unmet")
    assert (
        "2 jobs require what it does not offer, the nearest first: 1 of 'work' needs gpu_memory_gb ≥ 40, it offers 24;"
        " 1 of 'work' needs region = 'eu', it offers none."
    ) in explained
    assert explained.facts[-1].data == {
        "jobs": 2,
        "unmet": [
            {"task": "work", "jobs": 1, "lacks": [{"name": "gpu_memory_gb", "need": 40, "offer": 24}]},
            {"task": "work", "jobs": 1, "lacks": [{"name": "region", "need": "eu", "offer": None}]},
        ],
    }


def test_what_jobs_need_is_told_nearest_first_and_counted() -> None:
    worker = row(name="gpu-01", offers={"hardware": {"gpu_memory_gb": 16}})
    jobs = [submitted(requires={"hardware": {"gpu_memory_gb": gb}}) for gb in (80, 24, 24)]
    explained = told(worker, *jobs, submitted(requires={"hardware": {"gpu_memory_gb": 16}, "region": "50 %", "a": 1}))
    assert explained.facts[-1].text == (
        "4 jobs require what it does not offer, the nearest first:"
        " 2 of 'work' need hardware.gpu_memory_gb ≥ 24, it offers 16;"
        " 1 of 'work' needs hardware.gpu_memory_gb ≥ 80, it offers 16;"
        " 1 of 'work' needs region = '50 %' and a ≥ 1, it offers region none and a none."
    )
    many = [submitted(requires={f"n{number}": 1}) for number in range(7)]
    assert told(row(), *many).endswith("1 of 'work' needs n4 ≥ 1, it offers none; and 2 more kinds.")


def test_a_worker_behind_a_hub() -> None:
    full = told(row(name="gpu-01", busy=4))
    assert "It has as many jobs as it takes at once (max_concurrent_jobs 4): it is offered no more." in full
    worker = row(name="gpu-01", tasks=(), offers={"services": ["x"]})
    explained = told(worker, submitted(), submitted(requires={"services": {"in": ["x", "all"]}}))
    assert "1 job asks for no service, and it names no tasks: 'work'." in explained
    assert explained.codes[-1] == "may_take"


def test_isolation_is_a_reason() -> None:
    strict = row(customers=Customers(strict=True))
    jobs = [submitted(customer=one) for one in ("ann", "ann", "bob", None)]
    explained = told(strict, *jobs)
    assert explained.codes == ("worker_free", "looked_at", "queue_not_by_customer")
    assert "4 jobs are in queues where the jobs of all customers stand in one line, and it chooses" in explained
    assert "headrace queues set default --by-customer." in explained
    apart: dict[str, Any] = {"queue_default": '{"by_customer":true}'}
    explained = told(strict, *jobs, **apart)
    assert explained.codes == ("worker_free", "looked_at", "customer_not_taken", "may_take")
    assert "1 job is of customers that it does not take: 1 without one." in explained
    explained = told(strict, *jobs, holding=[submitted(customer="ann")], **apart)
    assert "It is strict and holds a job of 'ann': 1 job of other customers waits until that is done." in explained
    assert explained.facts[-1].data == {"jobs": 2}
    explained = told(row(customers=Customers(deny=frozenset({"ann"}))), *jobs, **apart)
    assert "2 jobs are of customers that it does not take: 'ann'." in explained


def test_limits_and_rates_and_settings_of_another_version() -> None:
    explained = told(row(), submitted(), held=2, queue_default='{"max_concurrency":2}')
    assert "1 job waits for a limit that is full: the queue 'default' may have 2 at once." in explained
    explained = told(row(), submitted(), queue_default='{"max_concurrency":"few"}')
    assert explained.codes[-1] == "setting_unreadable"


def test_a_key_of_a_customer_that_is_full() -> None:
    job = submitted(concurrency_key="k", customer="acme")
    limits, group = limits_of([("limit:work", '{"max_per_key":1}')]), group_of(job)
    usage = Usage(held=dict.fromkeys(counted_by(group), 1))
    explained = explain_worker(row(), at(60), [queued()], [job], limits, usage)
    assert "1 job waits for a limit that is full: the concurrency key 'k' of 'acme' may have 1 at once." in explained


def test_a_rate_that_is_spent() -> None:
    rate = Rate(1, per=3600)
    limits = limits_of([("queue:default", '{"rates":["api"]}'), ("rate:api", msgspec.json.encode(rate).decode())])
    for usage, code in (
        (Usage(), "may_take"),
        (Usage(spent={("rate", "api"): spend(rate, (), at(60), 1)}), "rate_spent"),
    ):
        explained = explain_worker(row(), at(60), [queued()], [submitted()], limits, usage)
        assert explained.codes[-1] == code


def test_jobs_in_quarantine_are_not_said_to_be_its_own_for_the_taking() -> None:
    job = msgspec.structs.replace(submitted(), suspect=2)
    found = told(row(), *([job] * 14))
    assert found.codes[-1] == "quarantine"
    assert "14 jobs are in quarantine, because workers that ran them died" in str(found)
    assert "Nothing keeps it" not in str(found)
