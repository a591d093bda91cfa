"""Which place a queued job has, and when it may start."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from headrace.core.explain.explanation import Fact
from headrace.core.explain.position import Position
from headrace.core.limits.selection import Usage
from headrace.core.limits.settings import Limits, QueueRule, TaskRule, limits_of
from headrace.core.matching.customers import Customers
from headrace.engine import Beat, WorkerRow
from tests.core.explain.test_job import ME, MINUTE, NOW, new, running, told, worker

BUSY = Beat(busy=4)


def position(ahead: int = 0, ended: int = 0, *, keyed: int = 0, more: bool = False) -> Position:
    """``ended`` in the last five minutes."""
    first = NOW - 9 * MINUTE if ended else None
    return Position(ahead=ahead, keyed=keyed, more=more, ended=ended, since=NOW - 5 * MINUTE, first_claimed_at=first)


def fact(facts: tuple[Fact, ...], code: str) -> Fact:
    [found] = [one for one in facts if one.code == code]
    return found


def test_behind_others_at_the_pace_of_the_queue() -> None:
    found = told(new(), NOW, worker(beat=BUSY), position=position(479, 3600))
    assert found.codes == ("queued", "position", "workers_busy", "estimate")
    assert "It is number 480 in its queue: 479 jobs are before it." in found
    assert "It may start about 40 s from now, at 12 jobs a second." in found
    place, estimate = fact(found.facts, "position").data, fact(found.facts, "estimate").data
    assert place == {"position": 480, "ahead": 479, "at_least": False, "approximate": False}
    at = NOW + timedelta(seconds=40)
    assert estimate == {"seconds": 40.0, "at": at, "at_least": False, "jobs_per_second": 12.0}


def test_the_first_with_a_free_slot_is_about_to_run() -> None:
    found = told(new(), NOW, worker(beat=Beat(busy=3)), position=position())
    assert found.codes == ("queued", "position", "ready")
    assert "It is the first in its queue." in found


def test_the_first_of_a_queue_whose_workers_are_busy() -> None:
    found = told(new(), NOW, worker(beat=BUSY), position=position(0, 30))
    assert found.codes == ("queued", "position", "workers_busy", "estimate")
    assert "It may start about 10 s from now, at 6 jobs a minute." in found


def test_fewer_free_slots_than_jobs_before_it() -> None:
    found = told(new(), NOW, worker(beat=Beat(busy=1)), position=position(5, 300))
    assert found.codes == ("queued", "position", "workers_free", "estimate")
    assert fact(found.facts, "estimate").data["seconds"] == 3.0


def test_a_queue_that_stands_still_has_no_estimate() -> None:
    found = told(new(), NOW, worker(beat=BUSY), position=position(1))
    assert found.codes == ("queued", "position", "workers_busy", "no_estimate")
    assert "1 job is before it." in found
    assert "No job of its queue was done in the last 5 min, so there is no telling when it starts." in found


def test_more_than_were_counted() -> None:
    found = told(new(), NOW, worker(beat=BUSY), position=position(10_000, 300, more=True))
    assert "At least 10,000 jobs are before it." in found
    assert "It may start not before 3 h from now, at 1 job a second." in found
    assert fact(found.facts, "position").data["at_least"] is True
    assert fact(found.facts, "estimate").data["at_least"] is True
    unknown = told(new(), NOW, worker(), position=position(0, 300, more=True))
    assert "How many jobs are before it is not known, there are too many." in unknown
    assert unknown.codes == ("queued", "position", "workers_free")


def test_keys_take_turns_so_that_it_is_only_about_right() -> None:
    for job, place in ((new(concurrency_key="k"), position(2, 300)), (new(), position(2, 300, keyed=1))):
        found = told(job, NOW, worker(beat=BUSY), position=place)
        assert "2 jobs are before it, more or less, since concurrency keys take turns." in found
        assert fact(found.facts, "position").data["approximate"] is True


def test_what_holds_it_back_comes_first_and_leaves_nothing_to_estimate() -> None:
    place = position(2, 300)
    paused = told(new(), NOW, worker(beat=BUSY), position=place, limits=Limits({"default": QueueRule(paused=True)}))
    assert paused.codes == ("queued", "queue_paused", "position", "workers_busy")
    by_whom = Limits(tasks={"resize": TaskRule(paused=True, paused_by="ann", paused_at=NOW - 5 * MINUTE)})
    task = told(new(), NOW, worker(beat=BUSY), position=place, limits=by_whom)
    assert task.codes == ("queued", "task_paused", "position", "workers_busy")
    assert "Task 'resize' was paused by ann at" in task
    assert fact(task.facts, "task_paused").data == {"task": "resize", "by": "ann", "at": NOW - 5 * MINUTE}
    full = Limits(tasks={"resize": TaskRule(max_concurrency=1)})
    limited = told(new(), NOW, worker(), position=place, limits=full, usage=Usage(held={("task", "resize"): 1}))
    assert limited.codes == ("queued", "limit_full", "position")
    assert told(new(), NOW, position=place).codes == ("queued", "no_worker", "position")
    assert told(new(), NOW, worker(tasks=()), position=place).codes == ("queued", "no_task", "position")


def test_a_setting_that_cannot_be_read_is_named_as_what_holds_it_back() -> None:
    place = position(2, 300)
    for settings in ({"limit:resize": "7"}, {"queue:default": '{"rates":["api"]}', "rate:api": "7"}):
        found = told(new(), NOW, worker(), position=place, limits=limits_of(settings.items()))
        assert found.codes == ("queued", "setting_unreadable", "position")
        key = list(settings)[-1]
        assert fact(found.facts, "setting_unreadable").data == {"setting": key}
        assert f"The setting {key!r} is none that this version of headrace can read" in found


def test_a_due_job_has_a_place_too_and_an_expired_one_has_none() -> None:
    due = told(new(NOW + MINUTE), NOW + MINUTE, worker(beat_at=NOW + MINUTE), position=position())
    assert due.codes == ("queued", "position", "ready")
    assert told(new(not_after=NOW), NOW, worker(), position=position()).codes == ("queued", "expired")


def test_a_customer_is_told_of_its_own_holders_and_of_no_machine() -> None:
    limits = Limits(queues={"default": QueueRule(max_concurrency=2)})
    mine, other = (replace(new(customer=name), id=UUID(int=n)) for n, name in ((8, "ann"), (9, "bob")))
    usage = Usage(held={("queue", "default"): 2})
    found = told(new(customer="ann"), limits=limits, usage=usage, holders=[mine, other], to="ann")
    full = fact(found.facts, "limit_full")
    assert full.text == f"The queue 'default' may have 2 jobs at once, and has 2: {mine.id}."
    assert full.data["by"] == [mine.id]
    job = new(requires={"gpu": 8})
    assert "It needs gpu ≥ 8; the nearest worker offers none." in told(job, NOW, worker(), to="ann")
    assert "mill" in told(job, NOW, worker())
    assert "mill" not in told(job, NOW, worker(), to="ann")
    held = told(running(), NOW, worker(), to="ann")
    assert f"It runs on worker {ME} since" in held


def named(name: str, number: int, **info: Any) -> WorkerRow:
    return worker(id=UUID(int=number), name=name, host=name, **info)


def test_every_requirement_that_the_nearest_worker_lacks_is_told() -> None:
    job = new(
        requires={"hardware": {"gpu_memory_gb": 24, "gpu_model": {"in": ["A100"]}}, "services": {"in": ["x", "all"]}}
    )
    far = named("far", 20, offers={"services": "y"})
    near = named(
        "worker-gpu-01", 21, offers={"services": ["x"], "hardware": {"gpu_memory_gb": 16, "gpu_model": "A100"}}
    )
    between = named("a", 22, offers={"services": ["x"], "hardware": {"gpu_memory_gb": 8, "gpu_model": "A100"}})
    found = told(job, NOW, far, between, near, worker(tasks=()))
    text = "It needs hardware.gpu_memory_gb ≥ 24; the nearest worker, worker-gpu-01, offers 16."
    assert fact(found.facts, "requirements_unmet").text == text
    unmet = fact(told(job, NOW, far).facts, "requirements_unmet")
    assert unmet.text == (
        "It needs hardware.gpu_memory_gb ≥ 24, hardware.gpu_model = 'A100' and services = 'x'; the nearest worker, far,"
        " offers hardware.gpu_memory_gb none, hardware.gpu_model none and services 'y'."
    )
    assert [one["name"] for one in unmet.data["unmet"]] == [
        "hardware.gpu_memory_gb",
        "hardware.gpu_model",
        "services",
    ]
    assert (unmet.data["nearest"], unmet.data["nearest_name"]) == (far.info.id, "far")


def test_a_customer_learns_of_no_names() -> None:
    job = new(customer="ann", requires={"tenant": "ann", "memory": 8})
    found = told(job, NOW, named("bobs-box", 20, offers={"tenant": "bob", "memory": 4}), to="ann")
    text = "It needs tenant = 'ann' and memory ≥ 8; the nearest worker offers tenant something else and memory 4."
    assert fact(found.facts, "requirements_unmet").text == text
    assert "bob" not in repr(found.facts)
    kept = named("bobs-box", 20, customers=Customers(allow=frozenset({"bob"})))
    limits = Limits(queues={"default": QueueRule(by_customer=True)})
    for rule in (limits, Limits()):
        assert "bob" not in repr(told(new(customer="ann"), NOW, kept, to="ann", limits=rule).facts)
    assert "bobs-box" in told(running(), NOW, named("bobs-box", ME.int))
    assert "bobs-box" not in told(running(), NOW, named("bobs-box", ME.int), to="ann")


def test_workers_that_name_no_tasks_take_what_asks_for_a_service() -> None:
    anything = named("any", 20, tasks=(), offers={"services": "all"})
    assert told(new(requires={"services": {"in": ["x", "all"]}}), NOW, anything).codes == ("queued", "ready")
    assert told(new(), NOW, anything).codes == ("queued", "no_task")


def test_isolation_keeps_workers_from_jobs() -> None:
    apart = Limits(queues={"default": QueueRule(by_customer=True)})
    strict = named("strict", 20, customers=Customers(strict=True))
    found = told(new(customer="ann"), NOW, strict)
    assert found.codes == ("queued", "queue_not_by_customer")
    assert "headrace queues set default --by-customer." in found
    assert told(new(customer="ann"), NOW, strict, limits=apart).codes == ("queued", "ready")
    found = told(new(), NOW, strict, limits=apart)
    assert found.codes == ("queued", "customer_not_taken")
    assert "No live worker takes jobs without a customer: 1 worker could run it, but is kept for others." in found
    choosy = named("choosy", 21, customers=Customers(deny=frozenset({"ann"})))
    assert "No live worker takes jobs of customer 'ann'" in told(new(customer="ann"), NOW, choosy, limits=apart)
    found = told(new(customer="ann"), NOW, strict, limits=apart, isolated={strict.info.id})
    assert found.codes == ("queued", "workers_isolated")
    assert "1 strict worker may take it once the jobs of other customers that it holds are done." in found
    both = told(new(customer="ann"), NOW, strict, worker(), limits=apart, isolated={strict.info.id})
    assert both.codes == ("queued", "workers_isolated", "ready")
