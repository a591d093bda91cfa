"""Walks every verb from every status, against the lifecycle page written down once more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from headrace.core.attempt import Completed, Failed, Progress, Snoozed, TimedOut
from headrace.core.change import Change
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution, loss, submission
from headrace.core.lifecycle.claim import promoted
from headrace.core.lifecycle.deduplication import lapse, replaced
from headrace.core.lifecycle.transitions import TRANSITIONS, check
from headrace.core.status import Cause, Reason, Status, Verb
from headrace.errors import TransitionRefused
from tests.core.stand import NOW, OOPS, OTHER, RULES, asked, at, end, given, stand, submitted

S = Status
End = tuple[Status, Reason | None]
Way = Callable[[Job], Job]

UNSTARTED = [S.PENDING, S.WAITING, S.SCHEDULED, S.QUEUED, S.ASSIGNED, S.RETRYING]


def made(decide: Callable[[Job], Change | None]) -> Way:
    def way(job: Job) -> Job:
        change = decide(job)
        assert change is not None
        return change.job

    return way


def to(status: Status, reason: Reason | None = None) -> Callable[[Status], End]:
    return lambda _: (status, reason)


def same(status: Status) -> End:
    return status, None


HARSH = Rules(undeliverable_after=1)

# name: the verb, how it is called, from which statuses the page allows it, and where it leads from there.
WAYS: dict[str, tuple[Verb, Way, list[Status], Callable[[Status], End]]] = {
    "admit": (Verb.ADMIT, made(lambda job: submission.admit(job, NOW)), [S.PENDING], to(S.QUEUED)),
    "admit later": (
        Verb.ADMIT,
        made(lambda job: submission.admit(replace(job, available_at=at(9)), NOW)),
        [S.PENDING],
        to(S.SCHEDULED),
    ),
    "admit behind others": (
        Verb.ADMIT,
        made(lambda job: submission.admit(replace(job, waits=1), NOW)),
        [S.PENDING],
        to(S.WAITING),
    ),
    "admit an invalid one": (
        Verb.ADMIT,
        made(lambda job: submission.admit(job, NOW, OOPS)),
        [S.PENDING],
        to(S.FAILED, Reason.INVALID_PAYLOAD),
    ),
    "unblock": (Verb.UNBLOCK, made(lambda job: submission.unblock(job, NOW)), [S.WAITING], to(S.QUEUED)),
    "unblock before its time": (
        Verb.UNBLOCK,
        made(lambda job: submission.unblock(replace(job, available_at=at(9)), NOW)),
        [S.WAITING],
        to(S.SCHEDULED),
    ),
    "unblock not as asked": (
        Verb.UNBLOCK,
        made(lambda job: submission.unblock(job, NOW, as_asked=False)),
        [S.WAITING],
        to(S.CANCELLED, Reason.PARENT),
    ),
    "unblock not as asked, failing": (
        Verb.UNBLOCK,
        made(lambda job: submission.unblock(job, NOW, as_asked=False, cancel=False)),
        [S.WAITING],
        to(S.FAILED, Reason.PARENT),
    ),
    "promote": (Verb.PROMOTE, lambda job: promoted(job, at(60)), [S.SCHEDULED, S.RETRYING], to(S.QUEUED)),
    "claim": (Verb.CLAIM, lambda job: given(job), [S.QUEUED], to(S.ACCEPTED)),
    "claim as an offer": (Verb.CLAIM, lambda job: given(job, accept=False), [S.QUEUED], to(S.ASSIGNED)),
    "accept": (Verb.ACCEPT, made(lambda job: execution.accept(job, NOW, RULES)), [S.ASSIGNED], to(S.ACCEPTED)),
    "start": (
        Verb.START,
        made(lambda job: execution.start(job, NOW, RULES)),
        [S.ASSIGNED, S.ACCEPTED],
        to(S.RUNNING),
    ),
    "progress": (
        Verb.PROGRESS,
        made(lambda job: execution.progress(job, NOW, Progress(1.0), RULES)),
        [S.RUNNING],
        to(S.RUNNING),
    ),
    "complete": (Verb.COMPLETE, made(lambda job: end(job, Completed())), [S.RUNNING], to(S.COMPLETED)),
    "fail": (Verb.FAIL, made(lambda job: end(job, Failed(error=OOPS))), [S.RUNNING], to(S.RETRYING)),
    "fail for good": (
        Verb.FAIL,
        made(lambda job: end(job, Failed(error=OOPS, reason=Reason.NO_HANDLER))),
        [S.RUNNING],
        to(S.FAILED, Reason.NO_HANDLER),
    ),
    "fail at last": (
        Verb.FAIL,
        made(lambda job: end(replace(job, charged=3), Failed(error=OOPS))),
        [S.RUNNING],
        to(S.FAILED, Reason.RETRIES_EXHAUSTED),
    ),
    "snooze": (Verb.SNOOZE, made(lambda job: end(job, Snoozed(5))), [S.RUNNING], to(S.SCHEDULED)),
    "release": (
        Verb.RELEASE,
        made(lambda job: execution.release(job, NOW)),
        [S.ASSIGNED, S.ACCEPTED, S.RUNNING],
        to(S.QUEUED),
    ),
    "lose": (
        Verb.LOSE,
        made(lambda job: loss.lose(job, Cause.LEASE, NOW, 0.5, RULES)),
        [S.ASSIGNED, S.ACCEPTED, S.RUNNING],
        lambda status: same(S.RETRYING if status is S.RUNNING else S.QUEUED),
    ),
    "lose at last": (
        Verb.LOSE,
        made(lambda job: loss.lose(replace(job, charged=3), Cause.LEASE, NOW, 0.5, HARSH)),
        [S.ASSIGNED, S.ACCEPTED, S.RUNNING],
        lambda status: (S.FAILED, Reason.LOST if status is S.RUNNING else Reason.UNDELIVERABLE),
    ),
    "expire": (
        Verb.EXPIRE,
        made(lambda job: actions.expire(replace(job, not_after=NOW, first_started_at=None), NOW)),
        [S.PENDING, S.WAITING, S.QUEUED, S.SCHEDULED],
        to(S.CANCELLED, Reason.EXPIRED),
    ),
    "cancel": (
        Verb.CANCEL,
        made(lambda job: actions.cancel(job, NOW, RULES)),
        [*UNSTARTED, S.ACCEPTED, S.RUNNING],
        lambda status: (S.CANCELLED, Reason.USER) if status in UNSTARTED else same(status),
    ),
    "retry": (Verb.RETRY, made(lambda job: actions.retry(job, NOW)), [S.FAILED, S.CANCELLED], to(S.QUEUED)),
    "retry before its time": (
        Verb.RETRY,
        made(lambda job: actions.retry(replace(job, available_at=at(9)), NOW)),
        [S.FAILED, S.CANCELLED],
        to(S.SCHEDULED),
    ),
    "retry after a delay": (
        Verb.RETRY,
        made(lambda job: actions.retry(job, NOW, delay=9)),
        [S.FAILED, S.CANCELLED],
        to(S.SCHEDULED),
    ),
    "retry behind others": (
        Verb.RETRY,
        made(lambda job: actions.retry(replace(job, waits=1), NOW)),
        [S.FAILED, S.CANCELLED],
        to(S.WAITING),
    ),
    "discard": (
        Verb.DISCARD,
        made(lambda job: actions.discard(job, NOW)),
        [S.COMPLETED, S.FAILED],
        to(S.CANCELLED, Reason.DISCARDED),
    ),
    "resolve with a result": (
        Verb.RESOLVE,
        made(lambda job: actions.resolve(job, NOW, result_text="1")),
        [S.WAITING, S.QUEUED, S.SCHEDULED, S.RETRYING, S.FAILED],
        to(S.COMPLETED),
    ),
    "resolve with an error": (
        Verb.RESOLVE,
        made(lambda job: actions.resolve(job, NOW, error=OOPS)),
        [S.WAITING, S.QUEUED, S.SCHEDULED, S.RETRYING],
        to(S.FAILED, Reason.NON_RETRYABLE),
    ),
    "postpone": (
        Verb.POSTPONE,
        made(lambda job: actions.postpone(job, at(99), NOW)),
        [S.QUEUED, S.SCHEDULED, S.RETRYING],
        to(S.SCHEDULED),
    ),
    "run now": (Verb.RUN_NOW, made(lambda job: actions.run_now(job, NOW)), [S.SCHEDULED, S.RETRYING], to(S.QUEUED)),
    "move": (
        Verb.MOVE,
        made(lambda job: actions.move(job, "elsewhere", NOW)),
        [S.WAITING, S.QUEUED, S.SCHEDULED, S.RETRYING],
        same,
    ),
    "reprioritise": (
        Verb.REPRIORITISE,
        made(lambda job: actions.reprioritise(job, 99, NOW)),
        [S.WAITING, S.QUEUED, S.SCHEDULED, S.RETRYING],
        same,
    ),
    "replace": (
        Verb.REPLACE,
        made(lambda job: replaced(job, submitted(), NOW)),
        [S.WAITING, S.QUEUED, S.SCHEDULED, S.RETRYING, S.ASSIGNED, S.ACCEPTED, S.RUNNING],
        lambda status: same(S.QUEUED if status in (S.SCHEDULED, S.RETRYING) else status),
    ),
    "replace, to run later": (
        Verb.REPLACE,
        made(lambda job: replaced(job, replace(submitted(), available_at=at(9)), NOW)),
        [S.WAITING, S.QUEUED, S.SCHEDULED, S.RETRYING, S.ASSIGNED, S.ACCEPTED, S.RUNNING],
        lambda status: same(S.SCHEDULED if status in (S.QUEUED, S.RETRYING) else status),
    ),
    "lapse": (Verb.LAPSE, made(lambda job: lapse(job, NOW)), [S.COMPLETED], same),
    "prepare": (
        Verb.PREPARE,
        made(lambda job: execution.prepare(job, NOW, RULES)),
        [S.ASSIGNED, S.ACCEPTED],
        to(S.ACCEPTED),
    ),
    "rerun": (
        Verb.RERUN,
        lambda job: actions.rerun(job, OTHER, NOW),
        [S.COMPLETED, S.FAILED, S.CANCELLED],
        to(S.QUEUED),
    ),
}
CELLS = [(name, status) for name in WAYS for status in Status]


@pytest.mark.parametrize(("name", "status"), CELLS, ids=[f"{name}-{status}" for name, status in CELLS])
def test_every_verb_from_every_status(name: str, status: Status) -> None:
    verb, way, allowed, leads = WAYS[name]
    job = stand(status)
    if name == "cancel" and status is S.CANCELLED:
        assert actions.cancel(job, NOW, RULES) is None, "a second cancel is a no-op"
        return
    if status in allowed:
        after = way(job)
        assert (after.status, after.reason) == leads(status)
        return
    with pytest.raises(TransitionRefused) as refused:
        way(job)
    assert refused.value.job.id == job.id
    assert refused.value.job.status is status
    assert refused.value.verb == verb
    assert str(job.id) in str(refused.value)


def test_a_timeout_said_by_the_worker_is_a_loss() -> None:
    change = end(stand(S.RUNNING), TimedOut())
    assert (change.verb, change.job.status) == (Verb.LOSE, S.RETRYING)


WITH_CANCEL = {"fail", "fail for good", "fail at last", "snooze", "release", "lose", "lose at last"}


@pytest.mark.parametrize("status", [S.ACCEPTED, S.RUNNING])
@pytest.mark.parametrize("name", sorted(WITH_CANCEL))
def test_with_a_cancel_requested_everything_but_complete_ends_cancelled(name: str, status: Status) -> None:
    _, way, allowed, _ = WAYS[name]
    if status in allowed:
        after = way(asked(stand(status)))
        assert (after.status, after.reason) == (S.CANCELLED, Reason.USER)


def test_with_a_cancel_requested_complete_and_start_go_on() -> None:
    assert WAYS["complete"][1](asked(stand(S.RUNNING))).status is S.COMPLETED
    assert WAYS["start"][1](asked(stand(S.ACCEPTED))).status is S.RUNNING


@pytest.mark.parametrize("ending", [Completed(), Failed(error=OOPS), Snoozed(1), TimedOut()])
@pytest.mark.parametrize("status", sorted(set(Status) - {S.ASSIGNED, S.ACCEPTED, S.RUNNING}))
def test_nothing_rides_into_a_job_nobody_holds(status: Status, ending: Completed) -> None:
    with pytest.raises(TransitionRefused):
        end(stand(status), ending, started_at=NOW)


def test_the_table_says_what_the_page_says() -> None:
    placed = {S.WAITING, S.QUEUED, S.SCHEDULED}
    page: dict[Verb, dict[Status, set[Status]]] = {verb: {} for verb in Verb if verb is not Verb.SUBMIT}
    for verb, _, allowed, leads in WAYS.values():
        for status in allowed:
            page[verb].setdefault(status, set()).add(leads(status)[0])
    for status in (S.ACCEPTED, S.RUNNING):
        page[Verb.RELEASE][status].add(S.CANCELLED)
        page[Verb.LOSE][status].add(S.CANCELLED)
    page[Verb.RELEASE][S.ASSIGNED].add(S.CANCELLED)  # harmless: a cancel ends an assigned job at once
    page[Verb.FAIL][S.RUNNING].add(S.CANCELLED)
    page[Verb.SNOOZE][S.RUNNING].add(S.CANCELLED)
    page[Verb.RERUN] = {status: set(placed) for status in (S.COMPLETED, S.FAILED, S.CANCELLED)}
    page[Verb.PRUNE] = {status: set() for status in (S.COMPLETED, S.FAILED, S.CANCELLED)}
    assert {verb: {start: set(ends) for start, ends in row.items()} for verb, row in TRANSITIONS.items()} == page


def test_terminal_statuses_are_left_only_by_retry_discard_and_resolve() -> None:
    leaving = {
        verb
        for verb, row in TRANSITIONS.items()
        for start, ends in row.items()
        if start in (S.COMPLETED, S.FAILED, S.CANCELLED) and ends - {start} and verb is not Verb.RERUN
    }
    assert leaving == {Verb.RETRY, Verb.DISCARD, Verb.RESOLVE}


def test_check_refuses_a_wrong_target_too() -> None:
    check(stand(S.QUEUED), Verb.CLAIM)
    check(stand(S.QUEUED), Verb.CLAIM, S.ACCEPTED)
    with pytest.raises(TransitionRefused):
        check(stand(S.QUEUED), Verb.CLAIM, S.RUNNING)
