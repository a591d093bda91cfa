"""Why a job stands where it does, in words for programs and in sentences."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from headrace.core.attempt import Completed, ErrorInfo, Failed, History, Progress, Snoozed
from headrace.core.defaults import Rules
from headrace.core.explain.explanation import Explanation
from headrace.core.explain.job import explain
from headrace.core.explain.position import Position
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.actions import cancel, expire
from headrace.core.lifecycle.claim import ClaimRequest, grant
from headrace.core.lifecycle.execution import finish, sign, start
from headrace.core.lifecycle.loss import lose
from headrace.core.lifecycle.retry import Retry
from headrace.core.lifecycle.submission import submit
from headrace.core.limits.rate import Rate, spend
from headrace.core.limits.selection import Usage
from headrace.core.limits.settings import Limits, QueueRule, TaskRule
from headrace.core.stats.histogram import Quantiles
from headrace.core.status import Cause, Reason, Status
from headrace.engine import Beat, WorkerInfo, WorkerRow

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ME, OTHER = UUID(int=7), UUID(int=8)
RULES = Rules()
MINUTE = timedelta(minutes=1)


def new(available_at: datetime | None = None, not_after: datetime | None = None, **options: Any) -> Job:
    spec = Spec(task="resize", created_at=NOW, retry=Retry(3, jitter=False), **options)
    return submit(UUID(int=1), spec, "{}", NOW, available_at=available_at, not_after=not_after)


def running(**options: Any) -> Job:
    ask = ClaimRequest(n=1, free=1, profiles=frozenset({1}))
    return start(grant(ME, ask, 1, NOW, RULES).on(new(**options)), NOW, RULES).job


def worker(alive: bool = True, beat: Beat | None = None, beat_at: datetime = NOW, **info: Any) -> WorkerRow:
    known: dict[str, Any] = {"id": ME, "host": "mill", "pid": 42, "concurrency": 4, "tasks": ("resize",)}
    return WorkerRow(WorkerInfo(started_at=NOW, **(known | info)), beat or Beat(), 3, beat_at, alive, 0)


def told(job: Job, now: datetime = NOW, *workers: WorkerRow, **more: Any) -> Explanation:
    return explain(job, more.pop("history", History()), now, workers, **more)


ERROR = ErrorInfo("ValueError", "no such image\nat all")


def test_moments_are_told_in_the_zone_of_the_person() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    assert "since 2026-01-01 17:30:00+05:30 (just now)" in told(new(), zone=zone)


# Waiting for a time


def test_scheduled() -> None:
    found = told(new(NOW + timedelta(hours=3)))
    assert found.codes == ("scheduled",)
    assert str(found) == "It is scheduled for 2026-01-01 15:00:00+00:00 (in 3 h)."


def test_a_scheduled_job_that_is_due_stands_in_line() -> None:
    found = told(new(NOW + MINUTE), NOW + MINUTE, worker(beat_at=NOW + MINUTE))
    assert found.codes == ("queued", "ready")


def test_retrying_tells_the_error() -> None:
    job = finish(running(), Failed(error=ERROR), NOW, 0.5, RULES).job
    found = told(job)
    assert found.codes == ("retrying",)
    assert "ValueError: no such image:" in str(found)
    assert "1 of 4 attempts" in str(found)
    assert "(in 2 s)" in str(found)


def test_snoozed() -> None:
    assert told(finish(running(), Snoozed(60), NOW, 0.5, RULES).job).codes == ("snoozed",)


def test_waiting_for_others() -> None:
    job = submit(UUID(int=1), Spec(task="resize", created_at=NOW), "{}", NOW, waits=2)
    assert str(told(job)) == "It waits for 2 other jobs to end."


# In line


def test_a_paused_queue() -> None:
    found = told(new(), NOW, worker(), limits=Limits({"default": QueueRule(paused=True)}))
    assert found.codes == ("queued", "queue_paused")
    assert "Queue 'default' is paused: nothing is taken from it until it is resumed." in found


def test_a_paused_queue_names_who_paused_it_and_when() -> None:
    rule = QueueRule(paused=True, paused_by="anna", paused_at=NOW - MINUTE * 10)
    found = told(new(), NOW, worker(), limits=Limits({"default": rule}))
    assert "Queue 'default' was paused by anna at 2026-01-01 11:50:00+00:00 (10 min ago): nothing is taken" in found
    assert found.facts[1].data == {"queue": "default", "by": "anna", "at": NOW - MINUTE * 10}


def test_no_worker_at_all() -> None:
    assert told(new()).codes == ("queued", "no_worker")
    assert told(new(), NOW, worker(alive=False), worker(beat=Beat(state="draining"))).codes == ("queued", "no_worker")


def test_workers_that_fell_silent_are_no_workers() -> None:
    """When the last worker is killed, nobody is left to bury it."""
    later = NOW + timedelta(seconds=RULES.lease + 1)
    found = told(new(), later, worker(), worker(id=OTHER, beat_at=NOW - MINUTE))
    assert found.codes == ("queued", "no_worker")
    assert "No worker is heard of any more, the last 31 s ago" in found
    assert found.facts[1].data == {"last_heard_at": NOW}
    assert told(new(), later, worker(), worker(id=OTHER, beat_at=later, tasks=())).codes == ("queued", "no_task")
    assert told(new(), NOW + timedelta(seconds=RULES.lease), worker()).codes == ("queued", "ready")


def test_no_worker_has_the_task() -> None:
    found = told(new(), NOW, worker(tasks=("other",)), limits=Limits({"default": QueueRule(paused=True)}))
    assert found.codes == ("queued", "queue_paused", "no_task")
    assert "No live worker has the task 'resize'." in str(found)


def test_no_worker_serves_the_queue() -> None:
    assert told(new(queue="slow"), NOW, worker(queues=("fast",)), worker(tasks=())).codes[-1] == "queue_not_served"


def test_the_nearest_worker_that_does_not_meet_the_requirements_is_named() -> None:
    job = new(requires={"gpu": True, "memory": {"min": 64}})
    found = told(job, NOW, worker(tasks=()), worker(id=OTHER, offers={"gpu": True, "memory": 32}))
    assert found.codes[-1] == "requirements_unmet"
    assert f"It needs memory ≥ 64; the nearest worker, {OTHER} on mill, offers 32." in str(found)
    assert found.facts[-1].data == {
        "task": "resize",
        "queue": "default",
        "unmet": [{"name": "memory", "need": {"min": 64}, "offer": 32}],
        "nearest": OTHER,
        "nearest_name": None,
    }


def test_about_to_run() -> None:
    found = told(new(), NOW, worker(beat=Beat(busy=1)))
    assert found.codes == ("queued", "ready")
    assert "1 live worker may take it, with 3 free slots" in str(found)


def test_lost_unstarted() -> None:
    assert "fragile" in told(replace(new(), unstarted_losses=3), NOW, worker()).codes


def test_a_suspect() -> None:
    place = Position(ahead=7, keyed=0, more=False, ended=0, since=NOW, first_claimed_at=None)
    found = told(replace(new(), suspect=1, charged=1), NOW, worker(), position=place)
    assert found.codes[-1] == "suspect"
    assert "It is suspect: it ran when its worker died." in str(found)
    again = told(replace(new(), suspect=2, charged=1, spared=1), NOW, worker())
    assert "it ran when its workers died, 2 times, once uncharged; it is in quarantine:" in str(again)
    assert "with 4 free slots, as soon as one of them runs no other job in quarantine." in str(again)
    assert again.facts[-1].data == {"losses": 2, "quarantine": True, "spared": 1}
    dead = told(replace(new(), suspect=4, status=Status.FAILED, reason=Reason.LOST), NOW)
    assert "It is suspect: it ran when its workers died, 4 times." in str(dead)
    assert "mend its handler before you retry it" in str(dead)


def test_a_lost_attempt_leads_to_the_record_of_its_worker() -> None:
    lost = lose(running(), Cause.LEASE, NOW, 0.5, RULES)
    assert lost.attempt is not None
    history = History(attempts=(lost.attempt,))
    found = told(lost.job, history=history)
    assert f"headrace workers gone {ME}" in str(found)
    assert found.facts[-1].data == {"worker": ME, "attempt": 1}
    assert "workers gone" not in str(told(lost.job, history=history, to="acme")), "customers learn of no machines"
    slow = lose(running(), Cause.BEAT, NOW, 0.5, RULES)
    assert slow.attempt is not None
    assert "lost" not in told(slow.job, history=History(attempts=(slow.attempt,))).codes, "its worker lives"


def test_expiry() -> None:
    job = new(not_after=NOW + MINUTE)
    assert told(job, NOW, worker()).codes == ("queued", "expires", "ready")
    assert told(job, NOW + MINUTE, worker()).codes == ("queued", "expired")


# In a worker's hands


def test_running() -> None:
    job = replace(running(timeout=600.0), progress=Progress(40, "halfway or so"))
    found = told(job, NOW + 2 * MINUTE, worker(beat_at=NOW + 2 * MINUTE))
    assert found.codes == ("running", "progress", "deadline")
    text = str(found)
    assert f"It runs on worker {ME} on mill (pid 42) since 2026-01-01 12:00:00+00:00 (2 min ago), attempt 1." in text
    assert "It is at 40 %: halfway or so." in text
    assert "(in 8 min)" in text
    expects = Progress(40, estimated_completion=NOW + 5 * MINUTE)
    found = told(replace(job, progress=expects), NOW + 2 * MINUTE, worker(beat_at=NOW + 2 * MINUTE))
    assert found.codes == ("running", "progress", "estimated_completion", "deadline")
    assert "It expects to be done at 2026-01-01 12:05:00+00:00 (in 3 min)." in str(found)


def test_held_by_a_worker_nobody_knows() -> None:
    assert f"It runs on worker {ME} since" in str(told(running()))


def test_held_by_a_worker_in_trouble() -> None:
    job = running(timeout=None)
    assert told(job, NOW, worker(alive=False)).codes == ("running", "worker_dead")
    later, found = NOW + 4 * MINUTE, told(job, NOW + 4 * MINUTE, worker())
    assert found.codes == ("running", "worker_silent")
    assert "That worker has been silent for 4 min; no other is alive to take the job back: start one." in found
    assert found.facts[1].data == {"since": NOW, "seconds": 240.0}
    found = told(job, later, worker(), worker(id=OTHER, beat_at=later))
    assert "That worker has been silent for 4 min; the job is about to be taken back." in found
    assert told(job, NOW, worker(beat=Beat(state="blocked"))).codes == ("running", "worker_blocked")


def test_cancel_requested() -> None:
    change = cancel(running(timeout=None), NOW, RULES)
    assert change is not None
    found = told(change.job, NOW, worker())
    assert found.codes == ("running", "cancel_requested")
    assert "it is ended at 2026-01-01 12:00:30+00:00" in str(found)


def test_out_of_time() -> None:
    assert "timed_out" in told(running(timeout=30.0), NOW + MINUTE, worker(beat_at=NOW + MINUTE)).codes


def test_a_running_job_that_must_report() -> None:
    job = running(timeout=600.0, heartbeat=90.0)
    alive = worker(beat_at=NOW + MINUTE)
    found = told(job, NOW + MINUTE, alive)
    assert found.codes == ("running", "deadline", "sign_by")
    assert "It must report something every 90 s, next by" in str(found)
    assert "(in 30 s)." in str(found)
    assert "It has reported nothing for 90 s: its time ran out at" in str(told(job, NOW + 2 * MINUTE, alive))
    signed = sign(job, NOW + 9.5 * MINUTE, RULES)
    assert signed is not None
    assert "sign_by" not in told(signed.job, NOW + 9.6 * MINUTE, alive).codes, "its timeout is sooner"


# Over


def test_completed() -> None:
    assert (
        str(told(finish(running(), Completed(), NOW, 0.5, RULES).job)) == "It completed at 2026-01-01 12:00:00+00:00."
    )


def test_failed_tells_reason_error_and_remedy() -> None:
    change = finish(replace(running(), charged=3), Failed(error=ERROR), NOW, 0.5, RULES)
    assert change.attempt is not None
    found = told(change.job, history=History((change.attempt,)))
    assert found.codes == ("failed", "error", "remedy", "attempts")
    assert "no attempt is left" in str(found)
    assert "The last error was ValueError: no such image." in str(found)
    assert "1 attempt so far: 1 failed." in str(found)


def test_cancelled_and_expired() -> None:
    change = cancel(new(), NOW, RULES)
    assert change is not None
    assert "that was asked for" in str(told(change.job))
    late = expire(new(not_after=NOW), NOW).job
    assert "not started before its last moment" in str(told(late))


def test_where_it_came_from() -> None:
    found = told(new(schedule="nightly", fire_at=NOW, rerun_of=OTHER), NOW, worker())
    assert found.codes == ("schedule", "rerun", "queued", "ready")
    assert "The schedule 'nightly' submitted it for 2026-01-01 12:00:00+00:00." in str(found)
    by_hand = told(new(schedule="nightly"), NOW, worker())
    assert "It was triggered by hand, from the schedule 'nightly'." in str(by_hand)


def test_a_full_limit_is_named_with_those_who_hold_it() -> None:
    limits = Limits({"default": QueueRule(max_concurrency=9)}, {"resize": TaskRule(max_concurrency=2, max_per_key=1)})
    job = new(concurrency_key="k")
    holder = replace(running(concurrency_key="k"), id=UUID(int=77))
    usage = Usage(held={("queue", "default"): 2, ("task", "resize"): 2, ("key", "resize", "k"): 1})
    found = told(job, NOW, worker(), limits=limits, usage=usage, holders=[holder])
    assert found.codes == ("queued", "limit_full", "limit_full")
    assert "The task 'resize' may have 2 jobs at once, and has 2: 00000000-0000-0000-0000-00000000004d." in found
    assert "The concurrency key 'k' may have 1 job at once, and has 1" in found
    assert found.facts[1].data["by"] == [UUID(int=77)]


def test_a_spent_rate_says_when_the_next_permit_is() -> None:
    limits = Limits(tasks={"resize": TaskRule(rates=("api",))}, rates={"api": Rate(1, per=60, kind="sliding")})
    usage = Usage(spent={("rate", "api"): spend(limits.rates["api"], (), NOW)})
    found = told(new(), NOW, worker(), limits=limits, usage=usage)
    assert found.codes == ("queued", "rate_spent")
    assert found.facts[1].text.startswith("The rate 'api' lets 1 begin in 60 s: the next at ")
    assert found.facts[1].data["next_permit"] > NOW


def test_how_long_runs_of_its_task_take() -> None:
    takes = Quantiles(count=200, mean=3.0, p50=2.0, p95=8.0, p99=20.0)
    found = explain(running(), History(), NOW, takes=takes)
    [usual] = [one for one in found.facts if one.code == "processing_time"]
    assert usual.text == "Runs of its task take up to 2 s (p50), up to 8 s (p95)."
    assert usual.data == {"runs": 200, "p50": 2.0, "p95": 8.0, "p99": 20.0}
