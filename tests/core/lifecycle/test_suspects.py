"""Jobs that may have killed their worker: who is suspect, who is spared, and that no neighbour dies of one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given as on
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.core.attempt import Completed, Ending, Failed, Released, Snoozed
from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution, loss
from headrace.core.lifecycle.claim import ClaimRequest, grant, promoted
from headrace.core.lifecycle.retry import Retry
from headrace.core.lifecycle.suspects import REQUIREMENT, in_quarantine, ran_together, requirements_of
from headrace.core.lifecycle.sweep import sweep
from headrace.core.status import Cause, Outcome, Reason, Status
from tests.core.stand import NOW, OOPS, RULES, WORKER, at, running, stand, submitted
from tests.support.seed import examples

BUDGET = Retry(max_retries=3, backoff="fixed", initial=8, jitter=False)


def lose(job: Job, *, beside: bool = False, cause: Cause = Cause.LEASE, chance: float = 0.5) -> Change:
    return loss.lose(job, cause, NOW, chance, RULES, beside_suspect=beside)


def suspected(losses: int = 1, *, charged: int | None = None, spared: int = 0, retry: Retry = BUDGET) -> Job:
    used = losses if charged is None else charged
    return replace(running(retry=retry), suspect=losses, charged=used, spared=spared)


# Who is suspect


def test_who_ran_on_a_worker_that_died_is_suspect() -> None:
    lost = lose(running(retry=BUDGET))
    assert (lost.job.suspect, lost.job.charged, lost.job.spared, lost.moves) == (1, 1, 0, False)
    again = lose(suspected())
    assert (again.job.suspect, again.moves) == (2, True)


@pytest.mark.parametrize("cause", sorted(set(Cause) - {Cause.LEASE}))
def test_who_was_lost_otherwise_is_not(cause: Cause) -> None:
    lost = lose(running(retry=BUDGET), cause=cause, beside=True)
    assert (lost.job.suspect, lost.job.charged, lost.moves) == (0, 1, False)


@pytest.mark.parametrize("cause", list(Cause))
def test_what_was_buffered_or_not_recorded_is_not(cause: Cause) -> None:
    lost = lose(stand(Status.ACCEPTED), cause=cause, beside=True)
    assert (lost.job.suspect, lost.job.spared, lost.moves) == (0, 0, False)
    again = lose(replace(stand(Status.ACCEPTED), suspect=1, attempt=1), cause=cause)
    assert (again.job.suspect, again.moves) == (1, False)


def test_completing_clears_it() -> None:
    done = execution.finish(suspected(spared=1), Completed(), NOW, 0.5, RULES).job
    assert (done.suspect, done.spared) == (0, 0)
    by_hand = actions.resolve(lose(suspected(3)).job, NOW, result_text="1").job
    assert (by_hand.suspect, by_hand.spared) == (0, 0)


def test_a_retry_by_a_person_clears_it() -> None:
    dead = lose(suspected(3, spared=1)).job
    assert (dead.status, dead.reason, dead.suspect, dead.charged) == (Status.FAILED, Reason.LOST, 4, 4)
    again = actions.retry(dead, NOW)
    assert (again.job.suspect, again.job.spared, again.moves) == (0, 0, True)


@pytest.mark.parametrize("ending", [Released(), Snoozed(1), Failed(error=OOPS)])
def test_nothing_else_does(ending: Any) -> None:
    ended = execution.finish(suspected(spared=1), ending, NOW, 0.5, RULES)
    assert (ended.job.suspect, ended.job.spared, ended.moves) == (1, 1, False)


# Who is in quarantine


def test_after_a_first_loss_it_runs_like_any_other() -> None:
    for job in (running(requires={"gpu": True}), replace(running(requires={"gpu": True}, retry=BUDGET), suspect=1)):
        assert not in_quarantine(job)
        assert requirements_of(job) == {"gpu": True}


def test_in_quarantine_it_requires_more() -> None:
    job = replace(running(requires={"gpu": True}, retry=BUDGET), suspect=2, charged=1)
    assert requirements_of(job) == {"gpu": True, REQUIREMENT: True}
    assert job.requires == {"gpu": True}


@pytest.mark.parametrize(
    ("losses", "charged", "apart"),
    [(0, 0, False), (0, 3, False), (1, 0, False), (1, 2, False), (1, 3, True), (2, 1, True)],
)
def test_quarantine_begins_at_the_second_loss_or_on_the_last_attempt(losses: int, charged: int, apart: bool) -> None:
    assert in_quarantine(suspected(losses, charged=charged)) is apart


def test_a_failure_that_leaves_one_attempt_moves_it() -> None:
    failed = execution.finish(suspected(charged=2), Failed(error=OOPS), NOW, 0.5, RULES)
    assert (in_quarantine(failed.job), failed.moves) == (True, True)


def test_what_has_ended_moves_nowhere() -> None:
    assert not lose(running(retry=Retry(0))).moves


# Who is spared


def test_ran_together_are_a_running_suspect_and_another_running_job() -> None:
    suspect, other, claimed = suspected(), running(), replace(running(), status=Status.ACCEPTED)
    assert ran_together([suspect, other, other])
    assert not ran_together([suspect, claimed])
    assert not ran_together([other, replace(suspect, status=Status.ACCEPTED)])
    assert ran_together([suspect, suspect])
    assert not ran_together([suspect])
    assert not ran_together([other, other])
    assert not ran_together([])


def test_who_ran_beside_a_suspect_is_spared_once() -> None:
    lost = lose(running(retry=BUDGET), beside=True)
    assert (lost.job.charged, lost.job.suspect, lost.job.spared, lost.moves) == (0, 1, 1, False)
    assert lost.job.status is Status.RETRYING
    assert lost.attempt is not None
    assert lost.attempt.outcome is Outcome.LOST
    assert lost.job.error is not None
    assert lost.job.error.message == "the worker is dead; not charged: a suspect ran beside it"
    assert lost.job.error.details == {"charged": False}


def test_a_job_with_a_single_attempt_is_not_called_twice() -> None:
    lost = lose(running(retry=Retry(0)), beside=True)
    assert (lost.job.status, lost.job.reason, lost.job.charged) == (Status.FAILED, Reason.LOST, 1)


def test_a_suspect_is_charged() -> None:
    lost = lose(suspected(), beside=True)
    assert (lost.job.charged, lost.job.suspect, lost.job.spared) == (2, 2, 0)


def test_but_not_for_its_last_attempt_if_others_ran_beside_it() -> None:
    lost = lose(suspected(3), beside=True)
    assert (lost.job.status, lost.job.charged, lost.job.spared) == (Status.RETRYING, 3, 1)
    assert lost.job.error is not None
    assert "not charged: it was its last attempt, and other jobs ran beside it" in lost.job.error.message
    alone = lose(suspected(3), beside=False)
    assert (alone.job.status, alone.job.charged) == (Status.FAILED, 4)


def test_nobody_is_spared_three_times() -> None:
    again = lose(suspected(3, spared=2), beside=True)
    assert (again.job.status, again.job.reason, again.job.charged) == (Status.FAILED, Reason.LOST, 4)


def test_a_cancelled_one_ends_cancelled() -> None:
    asked = replace(running(retry=BUDGET), cancel_requested_at=NOW)
    assert lose(asked, beside=True).job.status is Status.CANCELLED


# When it is tried again


@pytest.mark.parametrize("policy", [BUDGET, Retry(3, backoff=[8, 8], jitter=False), Retry(3, initial=8, jitter=False)])
@pytest.mark.parametrize("beside", [False, True])
def test_the_retry_of_a_lost_attempt_always_has_jitter(policy: Retry, beside: bool) -> None:
    job = suspected(charged=0, retry=policy)
    dues = {lose(job, beside=beside, chance=chance).job.available_at for chance in (0.0, 0.5, 0.75)}
    assert dues == {at(4), at(6), at(7)}


@pytest.mark.parametrize("policy", [BUDGET, Retry(3, backoff=[8, 8], jitter=False), Retry(3)])
@pytest.mark.parametrize("beside", [False, True])
def test_after_the_first_death_it_does_not_wait_for_its_backoff(policy: Retry, beside: bool) -> None:
    dues = {lose(running(retry=policy), beside=beside, chance=chance).job.available_at for chance in (0.0, 0.5, 0.75)}
    assert dues == {at(0.1), at(0.15), at(0.175)}


def test_unless_its_backoff_is_shorter() -> None:
    job = running(retry=Retry(3, backoff="fixed", initial=0.1, jitter=False))
    assert {lose(job, chance=chance).job.available_at for chance in (0.0, 0.5)} == {at(0.05), at(0.075)}
    assert lose(running(retry=Retry(3, backoff="fixed", initial=0.0))).job.available_at == NOW


def test_other_retries_have_it_as_the_policy_says() -> None:
    timed_out = loss.lose(running(retry=BUDGET), Cause.TIMEOUT, NOW, 0.0, RULES)
    assert timed_out.job.available_at == at(8)
    assert execution.finish(running(retry=BUDGET), Failed(error=OOPS), NOW, 0.0, RULES).job.available_at == at(8)


# The law as a whole


class _Worker:
    """A worker that obeys the rules: what it owns, which of that it has called, and with which starts on record."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.owned: dict[int, Job] = {}
        self.called: set[int] = set()

    def may_take(self, job: Job) -> bool:
        if not in_quarantine(job):
            return True  # into its buffer, if need be
        return not self.owns_one and len(self.called) < self.concurrency

    def may_call(self, number: int) -> bool:
        return number not in self.called and len(self.called) < self.concurrency

    @property
    def owns_one(self) -> bool:
        """Whether it owns a job in quarantine."""
        return any(in_quarantine(job) for job in self.owned.values())


class _World:
    """Jobs, one of which kills whatever worker calls it, and what is decided about them; chance chooses who is next."""

    def __init__(self, jobs: list[Job], workers: int, concurrency: int) -> None:
        self.jobs = dict(enumerate(jobs))
        self.workers = [_Worker(concurrency) for _ in range(workers)]
        self.poisoned = 0
        """How often the poison, which is job 0, was called."""

    def copy(self) -> _World:
        """The same world, of which another future may be seen."""
        other = _World(list(self.jobs.values()), len(self.workers), self.workers[0].concurrency)
        for mine, yours in zip(self.workers, other.workers, strict=True):
            yours.owned, yours.called = dict(mine.owned), set(mine.called)
        other.poisoned = self.poisoned
        return other

    def steps(self) -> list[tuple[Any, ...]]:
        """What may happen next."""
        found: list[tuple[Any, ...]] = []
        owned = {number for worker in self.workers for number in worker.owned}
        for number, job in self.jobs.items():
            if not job.ended and number not in owned:
                found += [("claim", worker, number) for worker in self.workers if worker.may_take(job)]
        for worker in self.workers:
            for number, job in worker.owned.items():
                if worker.may_call(number):
                    found.append(("call", worker, number, True))
                    if execution.start_may_wait(job, beside_suspect=worker.owns_one):
                        found.append(("call", worker, number, False))
                elif number in worker.called and job.status is Status.ACCEPTED:
                    found.append(("record", worker, number))
                if number in worker.called and number:
                    found += [("end", worker, number, how) for how in ("complete", "snooze", "release")]
            if 0 in worker.called:
                found += [("die", worker, False)] * 3
                found.append(("die", worker, True))  # others died at the same time, of something else
        return found

    def take(self, step: tuple[Any, ...]) -> None:
        what, worker, *rest = step
        getattr(self, f"_{what}")(worker, *rest)

    def _claim(self, worker: _Worker, number: int) -> None:
        job = self.jobs[number]
        if job.status in (Status.RETRYING, Status.SCHEDULED):
            job = promoted(job, NOW)
        worker.owned[number] = grant(WORKER, ClaimRequest(n=1, free=1, profiles=frozenset()), 1, NOW, RULES).on(job)

    def _call(self, worker: _Worker, number: int, recorded: bool) -> None:
        if in_quarantine(worker.owned[number]):  # what was called before is on record before it is
            for called in worker.called:
                if worker.owned[called].status is Status.ACCEPTED:
                    self._record(worker, called)
        if recorded:
            self._record(worker, number)
        worker.called.add(number)
        self.poisoned += number == 0

    def _record(self, worker: _Worker, number: int) -> None:
        worker.owned[number] = execution.start(worker.owned[number], NOW, RULES).job

    def _end(self, worker: _Worker, number: int, how: str) -> None:
        endings: dict[str, Ending] = {"complete": Completed(), "snooze": Snoozed(0), "release": Released()}
        job = worker.owned.pop(number)
        worker.called.discard(number)
        self.jobs[number] = execution.finish(job, endings[how], NOW, 0.5, RULES, NOW).job

    def _die(self, worker: _Worker, mass: bool) -> None:
        both = ran_together(worker.owned.values())
        for number, job in worker.owned.items():
            change = sweep(job, NOW, 0.5, RULES, alive=False, beside_suspect=both, mass_death=mass)
            assert change is not None
            self.jobs[number] = change.job
        worker.owned, worker.called = {}, set()


@settings(max_examples=examples(400))
@on(
    data=st.data(),
    poison=st.integers(0, 4),
    innocents=st.lists(st.integers(1, 3), min_size=1, max_size=8),
    workers=st.integers(1, 3),
    concurrency=st.sampled_from([2, 4, 8, 10]),
)
def test_an_innocent_job_with_two_attempts_left_never_dies_of_a_neighbour(
    data: st.DataObject, poison: int, innocents: list[int], workers: int, concurrency: int
) -> None:
    budgets = [Retry(poison), *(Retry(retries) for retries in innocents)]
    world = _World([submitted(retry=budget) for budget in budgets], workers, concurrency)
    for _ in range(120):
        steps = world.steps()
        if not steps:
            break
        world.take(data.draw(st.sampled_from(steps)))
        for number, job in world.jobs.items():
            assert number == 0 or job.status is not Status.FAILED, f"{job} died of its neighbour"
            assert job.charged <= job.max_attempts
    # Beyond its budget it was called once while its start was not on record, once more so when others died at the same
    # time, and twice it was spared.
    assert world.poisoned <= poison + 5


def _state(world: _World) -> tuple[Any, ...]:
    """What the future of a world with one worker depends on; worlds that differ in the order of equal jobs are one."""
    [worker] = world.workers
    poison, *innocents = (
        (worker.owned.get(number, job), number in worker.owned, number in worker.called)
        for number, job in world.jobs.items()
    )
    return _exactly(*poison), *sorted(_roughly(*innocent) for innocent in innocents)


def _exactly(job: Job, owned: bool, called: bool) -> tuple[Any, ...]:
    """All counts of the poison: its attempts are the deaths, which are fewer than make a job undeliverable."""
    losses = job.unstarted_losses, job.blameless_losses
    return job.status, job.charged, job.suspect, job.spared, job.attempt, *losses, owned, called


def _roughly(job: Job, owned: bool, called: bool) -> tuple[Any, ...]:
    """Of an innocent job attempts count only as far as ``start_may_wait`` looks at them; nothing once it is over."""
    if job.ended:
        return (job.status,)
    began = job.attempt > job.unstarted_losses
    losses = (2, 0) if began or job.unstarted_losses > 1 else (job.unstarted_losses, job.blameless_losses)
    return job.status, job.spec.retry.max_attempts, job.charged, job.suspect, job.spared, *losses, owned, called


@pytest.mark.parametrize("mass", [False, True])
@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize("innocents", [(2,), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize("poison", [1, 2, 3])
def test_in_no_order_does_an_innocent_job_die_of_its_neighbour(
    poison: int, innocents: tuple[int, ...], slots: int, mass: bool
) -> None:
    """All orders in which small worlds may claim, call, record, end and die, each state once."""
    budgets = [Retry(attempts - 1) for attempts in (poison, *innocents)]
    first = _World([submitted(retry=budget) for budget in budgets], 1, slots)
    rest, seen, worst = [first], {_state(first)}, 0
    while rest:
        world = rest.pop()
        for step in world.steps():
            if (step[0] == "end" and step[3] != "complete") or (step[0] == "die" and step[2] and not mass):
                continue  # to snooze and to be released changes nothing but the number of attempts
            after = world.copy()
            after.take((step[0], after.workers[0], *step[2:]))
            worst = max(worst, after.poisoned)
            for job in (after.jobs[number] for number in range(1, len(budgets))):
                assert job.status is not Status.FAILED, f"{job} died of its neighbour"
            if not after.jobs[0].ended and (state := _state(after)) not in seen:  # without the poison no worker dies
                seen.add(state)
                rest.append(after)
    assert poison <= worst <= poison + 4


def test_the_poison_that_was_not_recorded_kills_nobody_either() -> None:
    """The way to lose most to one neighbour: it killed once before its start was on record, and twice after."""
    world = _World([submitted(retry=Retry(3)), submitted(retry=Retry(1))], 1, 10)
    [worker] = world.workers
    for poison_recorded in (False, True, True):
        for step in (("claim", worker, 1), ("call", worker, 1, True), ("claim", worker, 0)):
            world.take(step)
        world.take(("call", worker, 0, poison_recorded))
        world.take(("die", worker, False))
    innocent, poison = world.jobs[1], world.jobs[0]
    assert (innocent.status, innocent.charged, innocent.spared) == (Status.RETRYING, 1, 2)
    assert (poison.suspect, in_quarantine(poison)) == (2, True)
    world.take(("claim", worker, 1))
    assert not worker.may_take(poison), "from now on they never meet"


def test_beside_one_in_quarantine_the_start_of_what_was_lost_in_a_mass_death_is_stored_first() -> None:
    world = _World([submitted(retry=Retry(3)), submitted(retry=Retry(1))], 1, 10)
    [worker] = world.workers
    innocent, poison = ("claim", worker, 1), ("claim", worker, 0)
    for step in (innocent, ("call", worker, 1, True), poison, ("call", worker, 0, False), ("die", worker, True)):
        world.take(step)
    assert (world.jobs[1].charged, in_quarantine(world.jobs[1])) == (1, True)
    assert execution.start_may_wait(world.jobs[0]), "no job has killed all those workers"
    for step in (innocent, ("call", worker, 1, True), poison):
        world.take(step)
    assert ("call", worker, 0, False) not in world.steps()
