"""Sums: what is counted is handed in once, whatever became of the beats."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from headrace.core.attempt import Attempt
from headrace.core.defaults import MAX_STATS_SERIES
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.submission import submit
from headrace.core.stats.rollup import SLOTS, Rollup, Step, Totals
from headrace.core.status import Outcome, Status
from headrace.runtime.totals import MAX_GATHERED_JOBS, FinishTotals

AT = datetime(2026, 5, 4, 3, 2, 59, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ME, REBORN = UUID(int=7), UUID(int=8)


def job_of(task: str, queue: str, began: datetime, waited: float, status: Status = Status.COMPLETED) -> Job:
    """A job that was in line for so many seconds before it began."""
    arrived = began - timedelta(seconds=waited)
    spec = Spec(task=task, created_at=AT, queue=queue)
    return replace(submit(UUID(int=1), spec, "{}", arrived, available_at=arrived), status=status)


def add(sums: FinishTotals, task: str, queue: str, at: datetime = AT, waited: float = 0.1, ran: float = 2.0) -> None:
    """An attempt that completed its job, noted and added up."""
    began = at - timedelta(seconds=ran)
    sums.completed.append((job_of(task, queue, began, waited), began, at))
    sums.gather()


def end(sums: FinishTotals, task: str, outcome: Outcome, status: Status, waited: float = 0.2, ran: float = 3.0) -> None:
    """An attempt that did not complete its job."""
    began = AT - timedelta(seconds=ran)
    sums.ended(job_of(task, "q", began, waited, status), outcome, began, AT)


def counts(rows: tuple[Rollup, ...]) -> dict[tuple[datetime, str, str], int]:
    return {(row.at, row.task, row.queue): row.totals.completed for row in rows}


def test_nothing_was_finished() -> None:
    assert FinishTotals().report(ME) == (0, ())


def test_attempts_are_added_up_by_minute_task_and_queue() -> None:
    sums = FinishTotals()
    for at in (AT, AT + SECOND, AT, AT + SECOND):  # what ended earlier may be stored later
        add(sums, "a", "q", at)
    add(sums, "a", "r", AT)
    end(sums, "b", Outcome.FAILED, Status.RETRYING)
    end(sums, "b", Outcome.LOST, Status.QUEUED)
    end(sums, "b", Outcome.TIMED_OUT, Status.QUEUED, -1.0, 5.0)
    number, rows = sums.report(ME)
    minute = AT.replace(second=0)
    assert number == 1
    assert counts(rows) == {
        (minute, "a", "q"): 2,
        (minute, "a", "r"): 1,
        (minute, "b", "q"): 0,
        (minute + 60 * SECOND, "a", "q"): 2,
    }
    assert {row.step for row in rows} == {Step.MINUTE}
    [other] = [row.totals for row in rows if row.task == "b"]
    assert (other.failed, other.lost, other.timed_out, other.retried) == (1, 1, 1, 1)
    assert (other.ran.count, other.ran.seconds, other.waited.seconds) == (2, 8.0, 0.2)


def test_a_job_that_was_moved_takes_no_others_with_it() -> None:
    sums, spec = FinishTotals(), Spec(task="a", created_at=AT, queue="q")
    jobs = [submit(UUID(int=n), spec, "{}", AT) for n in range(6)]
    for n, queue in ((0, "r"), (3, "s"), (4, "r")):
        jobs[n] = replace(jobs[n], moved_to=queue)
    sums.completed.extend((job, AT, AT) for job in jobs)
    sums.gather()
    assert {row.queue: row.totals.completed for row in sums.report(ME)[1]} == {"q": 3, "r": 2, "s": 1}


def test_no_time_is_negative_whatever_the_clock_did() -> None:
    sums = FinishTotals()
    add(sums, "a", "q", waited=-3.0, ran=-5.0)
    add(sums, "a", "q", waited=1.0, ran=2.0)
    [row] = sums.report(ME)[1]
    assert (row.totals.waited.count, row.totals.waited.seconds) == (2, 1.0)
    assert (row.totals.ran.count, row.totals.ran.seconds) == (2, 2.0)


def test_a_report_is_repeated_until_it_is_acknowledged() -> None:
    sums = FinishTotals()
    add(sums, "a", "q", AT)
    first = sums.report(ME)
    add(sums, "a", "q", AT)
    assert sums.report(ME) == first
    sums.acknowledged(first[0])
    number, rows = sums.report(ME)
    assert (number, list(counts(rows).values())) == (first[0] + 1, [1])
    sums.acknowledged(number)
    assert sums.report(ME) == (0, ())


def test_what_a_dead_worker_was_refused_is_handed_in_under_its_next_id() -> None:
    sums = FinishTotals()
    add(sums, "a", "q", AT)
    _, rows = sums.report(ME)
    sums.refused()
    assert sums.report(REBORN)[1] == rows


def test_what_may_have_been_kept_before_is_not_handed_in_again_by_another() -> None:
    sums = FinishTotals()
    add(sums, "a", "q", AT)
    sums.report(ME)  # and no answer came
    sums.report(ME)
    sums.refused()
    assert sums.report(REBORN) == (0, ())


def test_what_was_sent_under_an_id_is_not_sent_under_the_next_if_no_beat_was_refused() -> None:
    sums = FinishTotals()
    add(sums, "a", "q", AT)
    number, _ = sums.report(ME)  # it was kept, and no answer came
    add(sums, "b", "q", AT)
    again, rows = sums.report(REBORN)  # a claim has told that the worker is dead
    assert again != number
    assert [row.task for row in rows] == ["b"]
    assert sums.report(REBORN) == (again, rows)
    sums.acknowledged(again)
    assert sums.report(REBORN) == (0, ())


def test_a_report_is_bounded() -> None:
    sums = FinishTotals()
    for n in range(2 * MAX_STATS_SERIES):
        add(sums, f"task {n}", "q", AT)
    _, rows = sums.report(ME)
    assert len(rows) == MAX_STATS_SERIES
    assert sum(counts(rows).values()) == 2 * MAX_STATS_SERIES


def test_nothing_is_lost_between_two_threads() -> None:
    sums, found, over = FinishTotals(), list[int](), threading.Event()

    def take() -> None:
        while not over.is_set():
            number, rows = sums.report(ME)
            found.append(sum(counts(rows).values()))
            sums.acknowledged(number)

    taker = threading.Thread(target=take)
    taker.start()
    for _ in range(2000):
        add(sums, "a", "q", AT)
        end(sums, "a", Outcome.COMPLETED, Status.COMPLETED)
    over.set()
    taker.join()
    assert sum(found) + sum(counts(sums.report(ME)[1]).values()) == 4000


def test_what_is_followed_is_counted_for_ever_whatever_is_handed_in() -> None:
    sums = FinishTotals()
    add(sums, "a", "q")
    assert sums.ever() == ({}, {})
    sums.report(ME)
    sums.follow()
    sums.follow()  # again does no harm
    add(sums, "a", "q")
    end(sums, "a", Outcome.FAILED, Status.RETRYING)
    end(sums, "a", Outcome.FAILED, Status.FAILED)
    told = sums.ever()
    totals, dead = told
    assert [(one.completed, one.failed, one.retried, one.ran.count) for one in totals.values()] == [(1, 2, 1, 3)]
    assert dead == {("a", "q"): 1}
    number, _ = sums.report(ME)
    sums.acknowledged(number)
    sums.acknowledged(sums.report(ME)[0])
    assert sums.ever() == told


def test_an_attempt_on_record_is_counted_as_it_ended() -> None:
    sums, began = FinishTotals(), AT - 2 * SECOND
    job = job_of("a", "q", began, 0.5, Status.RUNNING)
    for outcome, start in ((Outcome.FAILED, began), (Outcome.LOST, began), (Outcome.COMPLETED, None)):
        sums.taken(Attempt(number=1, epoch=1, outcome=outcome, started_at=start, finished_at=AT), job)
    assert sums.completed == [(job, AT, AT)], "one that was completed without a start on record took no time"
    sums.gather()
    [row] = sums.report(ME)[1]
    totals = row.totals
    assert (totals.failed, totals.lost, totals.completed) == (1, 1, 1)
    assert (totals.waited.count, totals.ran.count, totals.ran.seconds) == (2, 2, 2.0)
    for _ in range(MAX_GATHERED_JOBS):
        sums.taken(Attempt(number=1, epoch=1, outcome=Outcome.COMPLETED, started_at=began, finished_at=AT), job)
    assert sums.completed == [], "many are added up at once"


def attempted(number: int, charged: int, status: Status, queued: float = 4.0) -> Job:
    """A job whose attempt of this number has just ended, which was assigned so many seconds after it arrived."""
    job = job_of("a", "q", AT, queued + 1, status)
    return replace(job, attempt=number, charged=charged, assigned_at=job.arrived_at + queued * SECOND)


def totals_of(sums: FinishTotals) -> Totals:
    sums.gather()
    [row] = sums.report(ME)[1]
    return row.totals


def test_a_job_is_queued_until_its_first_assignment() -> None:
    sums = FinishTotals()
    done = Status.COMPLETED
    for job in (attempted(1, 1, done, 4.0), attempted(1, 1, done, 2.0), attempted(2, 1, done, 900.0)):
        sums.completed.append((job, AT, AT + SECOND))  # the last was snoozed once: it waited for its own time
    found = totals_of(sums)
    assert (found.assigned, found.queued, found.completed, found.repeated) == (2, 6.0, 3, 0)
    assert found.processed == 3.0


def test_no_job_was_queued_for_a_negative_time_whatever_the_clock_did() -> None:
    sums = FinishTotals()
    sums.completed.append((attempted(1, 1, Status.COMPLETED, queued=-3.0), AT, AT))
    sums.ended(attempted(1, 1, Status.FAILED), Outcome.FAILED, AT, AT, AT - 60 * SECOND)
    sums.gather()
    found = totals_of(sums)
    assert (found.assigned, found.queued) == (2, 0.0)


def test_a_first_attempt_that_failed_was_queued_as_well() -> None:
    sums, job = FinishTotals(), attempted(1, 1, Status.RETRYING)
    sums.ended(replace(job, assigned_at=None), Outcome.FAILED, AT, AT + SECOND, job.assigned_at)
    found = totals_of(sums)
    assert (found.assigned, found.queued, found.died, found.repeated, found.processed) == (1, 4.0, 0, 0, 0.0)


def test_jobs_and_not_attempts_are_counted_as_retried_and_as_failed() -> None:
    sums = FinishTotals()
    sums.completed.append((attempted(3, 3, Status.COMPLETED), AT, AT))
    for job in (attempted(1, 1, Status.FAILED), attempted(4, 4, Status.FAILED), attempted(4, 4, Status.CANCELLED)):
        sums.ended(job, Outcome.FAILED, AT, AT, job.assigned_at)
    found = totals_of(sums)
    assert (found.completed, found.died, found.repeated, found.failed, found.assigned) == (1, 2, 2, 3, 1)


def test_what_a_worker_has_measured_counts_and_not_what_the_store_saw() -> None:
    sums = FinishTotals()
    done = Attempt(
        number=1,
        epoch=1,
        outcome=Outcome.COMPLETED,
        assigned_at=AT - SECOND,
        started_at=AT,
        finished_at=AT + SECOND,
        processing_time=0.25,
    )
    sums.taken(done, attempted(1, 1, Status.COMPLETED))
    sums.taken(replace(done, outcome=Outcome.FAILED, processing_time=0.5), attempted(1, 1, Status.FAILED, 4.0))
    sums.taken(replace(done, processing_time=None), attempted(2, 2, Status.COMPLETED))
    found = totals_of(sums)
    assert (found.completed, found.died, found.repeated, found.processed) == (2, 1, 1, 1.25)
    assert (found.ran.count, found.ran.seconds) == (3, 1.75)
    assert (found.assigned, found.queued) == (2, 8.0)


def test_the_use_of_slots_is_handed_in_with_a_report_or_once_a_minute() -> None:
    sums = FinishTotals()
    for n in range(6):
        sums.occupied(20.0, 5.0, AT + 10 * n * SECOND)
        assert sums.report(ME) == (0, ()), "an idle worker writes little"
    sums.occupied(20.0, 5.0, AT + 60 * SECOND)
    number, rows = sums.report(ME)
    end = AT.replace(second=0) + 60 * SECOND
    assert rows == (Rollup(Step.MINUTE, end, SLOTS, "", Totals(slots=140.0, busy=35.0)),)
    sums.acknowledged(number)
    sums.occupied(20.0, 5.0, AT + 70 * SECOND)
    assert sums.report(ME) == (0, ())
    add(sums, "a", "q", AT + 70 * SECOND)
    _, rows = sums.report(ME)
    assert {row.task: row.totals.slots for row in rows} == {"a": 0.0, SLOTS: 20.0}


def test_idle_slots_are_handed_in_every_five_minutes() -> None:
    sums = FinishTotals()
    for seconds in range(0, 300, 10):
        sums.occupied(20.0, 0.0, AT + seconds * SECOND)
        assert sums.report(ME) == (0, ())
    sums.occupied(20.0, 0.0, AT + 300 * SECOND)
    _, [row] = sums.report(ME)
    assert (row.task, row.totals.slots, row.totals.busy) == (SLOTS, 620.0, 0.0)


def test_metrics_of_the_process_have_no_task_for_slots() -> None:
    sums = FinishTotals()
    sums.follow()
    sums.occupied(20.0, 5.0, AT)
    add(sums, "a", "q", AT)
    sums.report(ME)
    assert set(sums.ever()[0]) == {("a", "q")}
