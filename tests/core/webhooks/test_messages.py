"""Messages that a job has told of, and that are not there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from headrace.core.defaults import DELIVERY_RETENTION
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.submission import submit
from headrace.core.webhooks.delivery import first_told
from headrace.core.webhooks.messages import lost, missing
from headrace.core.webhooks.target import EVENTS, Notified, Target

NOW = datetime(2030, 1, 1, tzinfo=UTC)
OLD = NOW - DELIVERY_RETENTION - timedelta(hours=1)


def told(count: int, at: datetime = NOW) -> Notified:
    return Notified("wh_1", count, UUID(int=1), at)


def test_what_is_not_there_is_lost() -> None:
    assert lost(told(3), NOW, {1: NOW, 2: NOW, 3: NOW}, NOW) == []
    assert lost(told(3), NOW, {}, NOW) == [(1, 3)]
    assert lost(told(5), NOW, {2: NOW, 4: NOW}, NOW) == [(1, 1), (3, 3), (5, 5)]


def test_a_number_that_was_never_given_is_no_message() -> None:
    assert lost(told(3), NOW, {-1: NOW, 0: NOW, 1: NOW, 2: NOW, 3: NOW, 10**12: NOW}, NOW) == []
    assert lost(told(3), NOW, {1: NOW, 10**12: NOW}, NOW) == [(2, 3)]


def test_what_may_have_been_pruned_is_not_lost() -> None:
    assert lost(told(3, OLD), OLD, {}, NOW) == []
    assert lost(told(3), OLD, {3: NOW}, NOW) == []
    assert lost(told(4), OLD, {1: OLD, 3: NOW}, NOW) == [(4, 4)], "of the second it is not known how old it was"
    assert lost(told(4), OLD, {2: NOW}, NOW) == [(3, 4)], "what came after one that is young is young"
    assert lost(told(2), OLD, {1: None}, NOW) == [(2, 2)], "of the last it is known when it was made"


def store() -> tuple[Job, Job]:
    spec = Spec(task="work", created_at=NOW, webhook=(Target("wh_1", EVENTS),))
    job, [message] = first_told(submit(UUID(int=7), spec, "{}", NOW, available_at=NOW, not_after=None, waits=0))
    return job, message


def test_jobs_are_compared_with_their_messages() -> None:
    job, message = store()
    assert list(missing([job, message], NOW)) == []
    [(about, what)] = missing([job], NOW)
    assert about is job
    assert what == "of 1 messages to wh_1, 1 are missing, from number 1 on"
    other = replace(message, spec=replace(message.spec, tags=("wh_1", "another job")))
    assert len(list(missing([job, other], NOW))) == 1


def test_messages_of_a_version_that_did_not_count_are_not_judged() -> None:
    job, message = store()
    plain = replace(message, spec=replace(message.spec, metadata={}))
    assert list(missing([replace(job, told=(told(4),)), plain], NOW)) == []


def test_one_that_was_sent_again_counts() -> None:
    job, message = store()
    again = replace(message, id=UUID(int=9), spec=replace(message.spec, rerun_of=message.id))
    assert list(missing([job, again], NOW)) == []
