"""Queries: get, find, count, the ledger, and deletion."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import BEGIN, OOPS, Choices, Lab, Part
from headrace.core.attempt import ErrorInfo, Failed, History
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.retry import Retry
from headrace.core.query import HISTORY, Count, Filter, Ledger, as_seen, matches, seen_status
from headrace.core.stats.own_tasks import is_own
from headrace.core.status import ENDED, LIVE, Reason, Status
from headrace.errors import ConfigError

__all__ = ["Asking"]


async def find(lab: Lab, **fields: Any) -> list[Job]:
    """Return everything that matches, in one page."""
    fields |= {name: frozenset({fields[name]}) for name in ("task", "queue") if name in fields}
    page = await lab.engine.records.find(Filter(**fields), lab.now, 1000)
    assert page.cursor is None
    return list(page.items)


class Asking(Part):
    """What queries about many jobs promise."""

    async def test_get_answers_in_the_order_asked(self, lab: Lab) -> None:
        one, two = await lab.put(), await lab.put()
        assert await lab.engine.jobs.get([two.id, lab.new_id(), one.id, two.id]) == [two, None, one, two]
        assert await lab.engine.jobs.get([]) == []

    async def test_an_unknown_job_has_no_history(self, lab: Lab) -> None:
        assert await lab.engine.records.history(lab.new_id()) == History()

    # -- find

    async def test_newest_first(self, lab: Lab) -> None:
        jobs = await lab.put_all(*(lab.job(priority=n, delay=n % 2) for n in range(5)))
        assert await find(lab) == jobs[::-1]

    @pytest.mark.parametrize("status", sorted(Status))
    async def test_by_status(self, lab: Lab, status: Status) -> None:
        jobs = {one: await lab.stand(one, one.value, retry=Retry(jitter=False)) for one in Status}
        assert await find(lab, status=frozenset({status})) == [jobs[status]]
        assert len(await find(lab, status=frozenset({status, Status.RUNNING}))) == (1 + (status is not Status.RUNNING))

    async def test_a_due_job_is_seen_queued(self, lab: Lab) -> None:
        job = await lab.put(delay=10)
        queued = frozenset({Status.QUEUED})
        assert await find(lab, status=queued) == []
        lab.later(10)
        assert await find(lab, status=queued) == [as_seen(job, lab.now)] != [job]
        assert await find(lab, status=frozenset({Status.SCHEDULED})) == []
        assert await find(lab) == [as_seen(job, lab.now)]
        assert await lab.get(job) == job, "looking changes nothing"

    async def test_by_each_field_and_by_all_together(self, lab: Lab) -> None:
        job = await lab.put("a", queue="q", tags=("x", 'y,"z'), schedule="s", payload='{"k":"v"}')
        await lab.put("b")
        fields: dict[str, Any] = {"task": "a", "queue": "q", "tag": 'y,"z', "schedule": "s", "text": "V"}
        for name, value in fields.items():
            assert await find(lab, **{name: value}) == [job]
            assert await find(lab, **fields | {name: "nothing"}) == []
        assert await find(lab, status=frozenset({Status.QUEUED}), **fields) == [job]

    async def test_suspects(self, lab: Lab) -> None:
        dead, living = await lab.put_all(*(replace(lab.job(), suspect=losses, attempt=losses) for losses in (1, 2)))
        await lab.put()
        dead = await lab.cancel(dead)
        assert await find(lab, suspect=True) == [living, dead]
        assert await find(lab, suspect=True, status=frozenset({Status.CANCELLED})) == [dead]
        assert len(await find(lab)) == 3

    async def test_a_tag_is_matched_whole(self, lab: Lab) -> None:
        job = await lab.put(tags=("alpha", "beta gamma"))
        for part in ("alph", "lpha", "beta", "gamma", "Alpha", "", '"alpha"', "alpha,beta gamma", "%"):
            assert await find(lab, tag=part) == []
        assert await find(lab, tag="alpha") == await find(lab, tag="beta gamma") == [job]

    @pytest.mark.parametrize(
        "text", ["APPLE", "pple", "ÄPFEL", "äpfel", "50%", "a_b", "task-one", "*", "[x]", "\\", "'", "🜂", ""]
    )
    async def test_text_is_found_ignoring_case_and_taken_literally(self, lab: Lab, text: str) -> None:
        rows = ["apple", "Äpfel", "50% a_b", "500 aXb", "task-one", "* [x] \\ '", "🜂"]
        jobs = await lab.put_all(*(lab.job("task-one" if n == 4 else "t", payload=row) for n, row in enumerate(rows)))
        wanted = [job for job in reversed(jobs) if matches(job, Filter(text=text), lab.now)]
        assert wanted
        assert await find(lab, text=text) == wanted

    async def test_text_is_found_in_errors_and_ids(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        error = ErrorInfo("DiskFull", "no space left", "secret trace", {"hidden": 1})
        job = await lab.finish(job, Failed(error=error, reason=Reason.NON_RETRYABLE))
        await lab.put("other")
        assert await find(lab, text="diskfull") == await find(lab, text="SPACE LEFT") == [job]
        assert await find(lab, text=str(job.id).upper()) == [job]
        assert await find(lab, text="secret trace") == await find(lab, text="hidden") == []

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
    async def test_pages_follow_each_other_without_gap_or_repeat(self, lab: Lab, limit: int) -> None:
        jobs = await lab.put_all(*(lab.job("ab"[n % 2]) for n in range(14)))
        wanted = [job for job in reversed(jobs) if job.task == "a"]
        found: list[Job] = []
        cursor = None
        while True:
            page = await lab.engine.records.find(Filter(task=frozenset({"a"})), lab.now, limit, cursor)
            assert len(page.items) <= limit
            found += page.items
            await lab.put("a")  # later jobs do not disturb earlier pages
            if page.cursor is None:
                break
            cursor = page.cursor
        assert found == wanted

    async def test_a_strange_cursor_is_refused(self, lab: Lab) -> None:
        with pytest.raises(ConfigError, match="cursor"):
            await lab.engine.records.find(Filter(), lab.now, cursor="what?")

    @pytest.mark.parametrize("seed", range(3))
    async def test_find_agrees_with_the_core(self, lab: Lab, seed: int) -> None:
        choose = Choices(seed)
        jobs = await lab.put_all(
            *(
                replace(
                    lab.job(
                        choose("a", "b"),
                        queue=choose("q", "r"),
                        tags=choose((), ("x",), ("x", "y")),
                        delay=choose(0, 5, 50),
                        payload=choose('{"k":"Red"}', '{"k":"blue"}'),
                    ),
                    suspect=choose(0, 0, 1, 2),
                )
                for _ in range(40)
            )
        )
        for job in jobs[::7]:
            await lab.cancel(job)
        lab.later(10)
        here = [await lab.get(job) for job in reversed(jobs)]
        for _ in range(20):
            wish = Filter(
                status=choose(frozenset(), frozenset({Status.QUEUED}), frozenset({Status.SCHEDULED, Status.CANCELLED})),
                task=choose(frozenset(), frozenset({"a"})),
                queue=choose(frozenset(), frozenset({"q"})),
                tag=choose(None, "x", "y"),
                text=choose(None, "RED", "u"),
                suspect=choose(False, False, True),
            )
            wanted = tuple(as_seen(job, lab.now) for job in here if matches(job, wish, lab.now))
            assert (await lab.engine.records.find(wish, lab.now, 1000)).items == wanted

    # -- count and ledger

    async def test_count_by_queue_and_status_as_seen(self, lab: Lab) -> None:
        assert await lab.engine.records.count(lab.now) == []
        await lab.put(queue="a", delay=10)
        await lab.put(queue="a", delay=20)
        lab.later(5)
        await lab.put(queue="a")
        await lab.put(queue="b")
        await lab.stand(Status.COMPLETED, "other", queue="b")
        lab.later(5)
        counts = {(count.queue, count.status): count for count in await lab.engine.records.count(lab.now)}
        assert counts == {
            ("a", Status.QUEUED): Count("a", Status.QUEUED, 2, BEGIN + timedelta(seconds=5)),
            ("a", Status.SCHEDULED): Count("a", Status.SCHEDULED, 1, BEGIN + timedelta(seconds=20)),
            ("b", Status.QUEUED): Count("b", Status.QUEUED, 1, BEGIN + timedelta(seconds=5)),
            ("b", Status.COMPLETED): Count("b", Status.COMPLETED, 1, None),
        }

    async def test_count_without_history_leaves_out_what_completed_or_was_cancelled(self, lab: Lab) -> None:
        for n, status in enumerate(Status):
            for m in range(1 + n % 3):
                await lab.stand(status, f"{status}{m}", queue="ab"[m % 2])
        await lab.put(queue="a", delay=10)
        lab.later(20)  # deferred jobs are due by now
        everything = await lab.engine.records.count(lab.now)
        assert {count.status for count in everything} >= HISTORY
        standing = [count for count in everything if count.status not in HISTORY]
        assert await lab.engine.records.count(lab.now, history=False) == standing

    async def test_the_books_balance_through_everything(self, lab: Lab) -> None:
        for n, status in enumerate(Status):
            await lab.stand(status, status.value)
            ledger = await lab.engine.records.ledger()
            assert (ledger.accepted, ledger.unaccounted) == (n + 1, 0)
        assert await lab.engine.records.ledger() == Ledger(len(Status), len(LIVE), len(ENDED), 0, 1, 1, 1)
        assert sum(count.jobs for count in await lab.engine.records.count(lab.now)) == len(Status)
        assert await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now)) == len(ENDED)
        pruned = Ledger(
            len(Status), len(LIVE), 0, len(ENDED), 1, 1, 1, pruned_completed=1, pruned_failed=1, pruned_cancelled=1
        )
        assert await lab.engine.records.ledger() == pruned

    async def test_headraces_own_jobs_are_counted_apart_by_their_task(self, lab: Lab) -> None:
        tasks = ("mail", "headrace.deliver", "headrace", "Headrace.deliver", "x.headrace.deliver", "headrace.")
        in_turn = sorted(Status, key=lambda status: status is Status.QUEUED)  # a queued one would be claimed in passing
        here = [await lab.stand(status, task, queue="q") for status in in_turn for task in tasks]
        here += [await lab.stand(Status.QUEUED, task, queue="headrace.webhooks") for task in tasks]
        for history in (True, False):
            wanted = Counter(
                (job.queue, seen_status(job, lab.now), is_own(job.task))
                for job in here
                if history or job.status not in HISTORY
            )
            found = await lab.engine.records.count(lab.now, history=history)
            assert {(one.queue, one.status, one.own): one.jobs for one in found} == wanted
            assert len(found) == len(wanted)
        live, each = len(LIVE) + 1, len(tasks)
        assert (await lab.engine.records.ledger()).accepted == len(here)
        users = each - sum(map(is_own, tasks))
        ledger = Ledger.of(users * (live + 3), users * live, (users, users, users), 0, (0, 0, 0))
        assert await lab.engine.records.ledger(users=True) == ledger
        # What is pruned stays known for what it was.
        assert await lab.engine.jobs.delete({Status.COMPLETED: lab.now, Status.FAILED: lab.now}) == 2 * each
        ledger = Ledger.of(ledger.accepted, ledger.live, (0, 0, users), 2 * users, (users, users, 0))
        assert await lab.engine.records.ledger(users=True) == ledger
        assert (await lab.engine.records.ledger()).unaccounted == 0

    async def test_a_job_that_comes_back_is_live_again(self, lab: Lab) -> None:
        job = await lab.stand(Status.FAILED, "work")
        await lab.do(actions.retry(job, lab.now))
        assert await lab.engine.records.ledger() == Ledger(1, 1, 0, 0)

    async def test_how_jobs_ended_is_known_for_ever(self, lab: Lab) -> None:
        for n, (status, count) in enumerate(((Status.COMPLETED, 3), (Status.FAILED, 2), (Status.CANCELLED, 1))):
            for m in range(count):
                await lab.stand(status, f"task {n} {m}")
        [failed, _] = (await lab.engine.records.find(Filter(status=frozenset({Status.FAILED})), lab.now)).items
        assert await lab.engine.jobs.delete({Status.COMPLETED: lab.now}, 2) == 2
        assert await lab.engine.jobs.delete({Status.CANCELLED: lab.now}) == 1
        await lab.do(actions.discard(failed, lab.now))
        ledger = await lab.engine.records.ledger()
        assert (ledger.completed, ledger.failed, ledger.cancelled) == (3, 1, 2)
        assert (ledger.pruned_completed, ledger.pruned_failed, ledger.pruned_cancelled) == (2, 0, 1)
        assert (ledger.accepted, ledger.live, ledger.ended, ledger.pruned, ledger.pruned_unknown) == (6, 0, 3, 3, 0)

    # -- delete

    async def test_only_ended_jobs_past_their_moment_are_deleted(self, lab: Lab) -> None:
        jobs = {status: await lab.stand(status, status.value) for status in Status}
        ended = lab.now
        lab.later(100)
        young = await lab.stand(Status.COMPLETED, "young")
        assert await lab.engine.jobs.delete({status: ended - timedelta(microseconds=1) for status in ENDED}) == 0
        assert await lab.engine.jobs.delete({}) == 0
        assert await lab.engine.jobs.delete({Status.FAILED: ended}) == 1
        assert await lab.engine.jobs.delete(dict.fromkeys(ENDED, ended)) == 2
        for status, job in jobs.items():
            assert await lab.gone(job) is (status in ENDED)
        assert not await lab.gone(young)
        assert (await lab.engine.records.ledger()).unaccounted == 0

    async def test_all_that_is_kept_of_a_job_goes_with_it(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        job = await lab.finish(job, Failed(error=OOPS, reason=Reason.NON_RETRYABLE))
        job = await lab.do(actions.discard(job, lab.now))
        assert await lab.engine.jobs.delete({Status.CANCELLED: lab.now}) == 1
        assert await lab.engine.records.history(job.id) == History()
        assert await find(lab) == []

    async def test_no_more_than_the_limit_is_deleted(self, lab: Lab) -> None:
        for n in range(5):
            await lab.stand(Status.CANCELLED if n % 2 else Status.COMPLETED, f"t{n}")
        cutoffs = dict.fromkeys(ENDED, lab.now)
        assert [await lab.engine.jobs.delete(cutoffs, 2) for _ in range(4)] == [2, 2, 1, 0]
        ledger = Ledger(5, 0, 0, 5, completed=3, cancelled=2, pruned_completed=3, pruned_cancelled=2)
        assert await lab.engine.records.ledger() == ledger

    async def test_a_pruned_id_is_forgotten(self, lab: Lab) -> None:
        old = await lab.stand(Status.COMPLETED, "work")
        await lab.engine.jobs.delete({Status.COMPLETED: lab.now})
        [again] = await lab.put_all(replace(lab.job(), id=old.id))
        assert again.seq > old.seq
        assert await lab.attempts(again) == []
