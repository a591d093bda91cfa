"""Apply: what a change meets when it comes late, twice, or for a key that is taken."""

from __future__ import annotations

from pathlib import Path

import apsw
from msgspec.structs import replace

from headrace.conformance.lab import OOPS, Lab
from headrace.core.attempt import Completed, Failed
from headrace.core.change import Applied, Conflict, KeyEffect
from headrace.core.lifecycle import actions, deduplication, execution
from headrace.core.query import Filter
from headrace.core.status import Reason, Status
from headrace.engines.sql.encoding import Micros
from headrace.engines.sql.reader import past_of
from headrace.engines.sqlite import SqliteEngine


async def test_a_change_without_an_id_is_not_taken_for_a_repeat(lab: Lab) -> None:
    job = await lab.running(await lab.worker())
    first = execution.progress(job, lab.now, execution.DONE, lab.rules)
    assert first.id == 0
    done = lab.end(job, Completed())
    assert await lab.engine.jobs.apply([done], lab.now) == [Applied(done.job)]
    [verdict] = await lab.engine.jobs.apply([replace(done, worker=None)], lab.now)
    assert verdict == Conflict(done.job)


async def test_a_job_that_does_not_know_its_order_number_is_found_by_its_id(lab: Lab) -> None:
    stored = await lab.put()
    change = actions.cancel(replace(stored, seq=0), lab.now, lab.rules)
    assert change is not None
    [verdict] = await lab.apply(change)
    assert isinstance(verdict, Applied)
    assert (await lab.get(stored)).status is Status.CANCELLED
    assert (await lab.get(stored)).seq == stored.seq


async def test_a_key_freed_earlier_in_the_batch_can_be_taken_later_in_it(lab: Lab) -> None:
    first = await lab.cancel(await lab.put(dedup="k"))
    second = await lab.put(dedup="k")
    third = await lab.put("other")
    cancel, other = (actions.cancel(job, lab.now, lab.rules) for job in (second, third))
    assert cancel is not None
    assert other is not None
    retry = actions.retry(first, lab.now)
    assert retry.key is KeyEffect.TAKE
    verdicts = await lab.apply(cancel, retry, other)
    assert [type(verdict) for verdict in verdicts] == [Applied] * 3


async def test_of_two_takers_in_one_batch_the_second_is_told_who_holds_it(lab: Lab) -> None:
    one, two = [await lab.cancel(await lab.put(dedup="k")) for _ in range(2)]
    verdicts = await lab.apply(actions.retry(one, lab.now), actions.retry(two, lab.now))
    assert isinstance(verdicts[0], Applied)
    assert verdicts[1] == Conflict(two, verdicts[0].job)
    history = await lab.engine.records.history(two.id)
    assert [event.verb for event in history.events] == ["cancel"]


async def test_a_batch_in_which_nothing_is_refused_is_one_statement(lab: Lab) -> None:
    worker = await lab.worker()
    await lab.put_all(*(lab.job() for _ in range(50)))
    held = await lab.claim(worker)
    engine = lab.engine
    assert isinstance(engine, SqliteEngine)
    seen: list[str] = []

    def note(cursor: object, text: str, values: object) -> bool:
        seen.append(text)
        return True

    await engine._writer.run(lambda connection: connection.set_exec_trace(note))
    await lab.apply(*(lab.end(job, Completed(), started_at=lab.now) for job in held))
    await engine._writer.run(lambda connection: connection.set_exec_trace(None))
    assert len(seen) == 1


async def test_only_an_end_is_noted_whatever_was_noted_before(lab: Lab) -> None:
    worker = await lab.worker()
    parent = await lab.running(worker, "p")
    await lab.put_all(lab.job("child", waits=1, after=(parent.id,)))
    failed = lab.end(parent, Failed(error=OOPS, reason=Reason.NON_RETRYABLE))
    alone = lab.end(await lab.running(worker, "alone"), Completed())
    retry = actions.retry(failed.job, lab.now)
    verdicts = [(await lab.apply(change))[0] for change in (failed, retry, alone)]
    assert [isinstance(one, Applied) and one.noted for one in verdicts] == [True, False, False]


async def test_a_report_of_progress_touches_neither_rev_nor_the_last_change(lab: Lab) -> None:
    worker = await lab.worker()
    job = await lab.held(worker)
    start = lab.stamp(execution.start(job, lab.now, lab.rules))
    await lab.engine.jobs.apply([start], lab.now)
    report = execution.progress(start.job, lab.at(1), execution.DONE, lab.rules)
    assert [type(verdict) for verdict in await lab.apply(report)] == [Applied]
    assert [type(verdict) for verdict in await lab.engine.jobs.apply([start], lab.now)] == [Applied]
    assert await lab.get(job) == report.job


async def test_all_of_many_that_follow_from_one_change_are_found(lab: Lab) -> None:
    change = actions.cancel(await lab.put(), lab.now, lab.rules)
    assert change is not None
    await lab.do(replace(change, inserts=tuple(lab.job("hook") for _ in range(3100))))
    for _ in range(3):
        await lab.put_all(*(lab.job("other") for _ in range(1000)))
    found, cursor = 0, None
    while found == 0 or cursor is not None:
        page = await lab.engine.records.find(Filter(task=frozenset({"hook"})), lab.now, 1000, cursor)
        found, cursor = found + len(page.items), page.cursor
    assert found == 3100


async def test_the_attempt_that_completed_a_job_is_on_its_row_and_is_read_from_where_earlier_versions_kept_it(
    lab: Lab, file: Path
) -> None:
    job = await lab.running(await lab.worker())
    lab.later(2)
    change = execution.finish(job, Completed("1"), lab.now, 0.5, lab.rules, processing_time=1.25)
    done = await lab.do(change)
    assert change.attempt is not None
    assert await lab.attempts(done) == [change.attempt]
    connection = apsw.Connection(str(file))
    assert connection.execute("SELECT count(*) FROM attempts").get == 0
    connection.execute("UPDATE jobs SET number = NULL, took = NULL, worker = NULL")
    connection.execute("INSERT INTO attempts VALUES (?, 1, ?)", (done.seq, past_of(change.attempt, Micros())))
    connection.close()
    assert await lab.get(done) == done
    assert await lab.attempts(done) == [change.attempt]
    assert await lab.engine.jobs.apply([change], lab.now) == [Applied(done)]


async def test_a_change_of_a_completed_job_leaves_the_attempt_that_completed_it(lab: Lab) -> None:
    job = await lab.running(await lab.worker(), dedup="k", dedup_for=60)
    change = lab.end(job, Completed("1"))
    done = await lab.do(change)
    await lab.do(deduplication.lapse(done, lab.later(60)))
    assert await lab.attempts(done) == [change.attempt]
