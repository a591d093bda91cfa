"""Which deliveries follow from a change, as a pure function."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from headrace.core.attempt import Completed, ErrorInfo, Failed, Progress, Released, Snoozed, TimedOut
from headrace.core.defaults import DELIVERY_RETENTION, MAX_WEBHOOK_RESULT_BYTES, WEBHOOK_PROGRESS_INTERVAL, Rules
from headrace.core.job import Job, Spec
from headrace.core.lifecycle import actions, execution, loss, submission
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Cause, Reason, Status, Verb
from headrace.core.webhooks.delivery import (
    POLICY,
    QUEUE,
    TASK,
    claim_told,
    delivery,
    first_told,
    is_delivery,
    message_in_words,
    tell,
)
from headrace.core.webhooks.target import GROUPS, Occasion, Target
from headrace.core.words import EMPROPS, HEADRACE

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ID, WORKER = UUID(int=7 << 76 | 0b10 << 62 | 5), UUID(int=9)
OOPS = ErrorInfo("ValueError", "no", "Traceback: secret/path.py")
RULES = Rules()
USUAL: tuple[Occasion, ...] = (*GROUPS["status_change"], "progress")
ALL = Target("wh_all", USUAL)


def job(*targets: Target, **fields: Any) -> Job:
    spec = Spec(task="resize", created_at=NOW, webhook=targets or (ALL,), **fields)
    return first_told(submission.submit(ID, spec, '{"password":"hunter2"}', NOW))[0]


def held(*targets: Target, **fields: Any) -> Job:
    return replace(job(*targets, **fields), status=Status.ACCEPTED, worker=WORKER, epoch=1, assigned_at=NOW)


def running(*targets: Target, **fields: Any) -> Job:
    return execution.start(held(*targets, **fields), NOW, RULES).job


def types(jobs: tuple[Job, ...]) -> list[str]:
    return [one.payload["message"]["type"] for one in jobs]


def end(of: Job, ending: Any, started_at: datetime | None = None) -> Any:
    return execution.finish(of, ending, NOW, 0.5, RULES, started_at)


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        (Completed("1"), ["job.completed"]),
        (Failed(error=OOPS), ["job.retrying"]),
        (Failed(error=OOPS, delay=3), ["job.retrying"]),
        (Snoozed(5), []),
        (Released(), []),
    ],
)
def test_what_each_ending_tells(ending: Any, told: list[str]) -> None:
    assert types(end(running(), ending).inserts) == told
    riding = end(held(), ending, NOW)
    assert types(riding.inserts) == ["job.started", *told], "a start that is written along is told first"
    assert riding.rev == held().rev


def test_a_start_a_cancel_and_an_end_by_hand_are_told() -> None:
    assert types(execution.start(held(), NOW, RULES).inserts) == ["job.started"]
    for change in (actions.cancel(job(), NOW, RULES), actions.resolve(job(), NOW, result_text="1")):
        assert change is not None
        assert types(change.inserts) in (["job.cancelled"], ["job.completed"])
    asked = actions.cancel(running(), NOW, RULES)
    assert asked is not None
    assert asked.inserts == (), "it is not cancelled yet"


OF_CLAIMS = Target("wh_claims", ("assigned", "accepted", "started", "completed"))


def test_a_claim_is_told_by_a_change_of_its_own() -> None:
    offered = replace(held(OF_CLAIMS), status=Status.ASSIGNED)
    change = claim_told(offered)
    assert change is not None
    assert types(change.inserts) == ["job.assigned"]
    assert (change.verb, change.rev, change.epoch, change.worker) == (Verb.CLAIM, offered.rev, 1, WORKER)
    assert change.job == replace(offered, rev=offered.rev + 1, told=change.job.told)
    assert claim_told(change.job) is None, "it is told"
    accepted = execution.accept(change.job, NOW, RULES)
    assert types(accepted.inserts) == ["job.accepted"]
    assert claim_told(accepted.job) is None
    started = execution.start(accepted.job, NOW, RULES)
    assert types(started.inserts) == ["job.started"]
    assert claim_told(started.job) is None
    message = change.inserts[0].payload["message"]
    assert (message["data"]["status"], message["timestamp"]) == ("assigned", "2026-01-01T00:00:00Z")


def test_a_claim_that_was_not_told_is_told_with_the_next_change() -> None:
    offered = replace(held(OF_CLAIMS), status=Status.ASSIGNED)
    later = NOW + timedelta(seconds=20)
    accepted = execution.accept(offered, later, RULES)
    assert types(accepted.inserts) == ["job.assigned", "job.accepted"]
    assert [one.payload["message"]["timestamp"] for one in accepted.inserts] == [
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:20Z",
    ]
    assert accepted.inserts[1].spec.after == (accepted.inserts[0].id,)
    told = claim_told(offered)
    assert told is not None
    assert told.inserts[0].id == accepted.inserts[0].id, "whichever of them is written, it is the same message"
    for change in (execution.release(offered, later), loss.lose(offered, Cause.ACCEPT_BY, later, 0.5, RULES)):
        assert types(change.inserts) == ["job.assigned"]
        assert change.job.told is not None
    again = replace(execution.release(offered, later).job, status=Status.ASSIGNED, worker=WORKER, epoch=3)
    assert claim_told(again) is not None, "another claim"


def test_a_worker_that_takes_and_starts_at_once_tells_both() -> None:
    taken = held(OF_CLAIMS)
    assert types(execution.start(taken, NOW, RULES).inserts) == ["job.accepted", "job.started"]
    done = end(taken, Completed("1"), NOW)
    assert types(done.inserts) == ["job.accepted", "job.started", "job.completed"]
    assert [one.spec.after for one in done.inserts] == [(), (done.inserts[0].id,), (done.inserts[1].id,)]
    assert types(end(taken, Failed(error=OOPS), NOW).inserts) == ["job.accepted", "job.started"]
    assert [one.count for one in done.job.told or ()] == [3]


def test_who_does_not_ask_for_claims_hears_nothing_of_them() -> None:
    for status in (Status.ASSIGNED, Status.ACCEPTED):
        assert claim_told(replace(held(), status=status)) is None
    assert claim_told(replace(held(), spec=replace(held().spec, webhook=None))) is None


def test_a_job_without_webhooks_tells_nothing() -> None:
    spec = Spec(task="resize", created_at=NOW)
    plain = replace(submission.submit(ID, spec, "{}", NOW), status=Status.ACCEPTED, worker=WORKER)
    done = end(plain, Completed("1"), NOW)
    assert (done.inserts, done.job.told) == ((), None)
    assert first_told(plain) == (plain, ())


def test_each_target_hears_what_it_asked_for() -> None:
    some = held(Target("wh_a", ("completed",)), Target("wh_b", ("started", "completed")))
    told = end(some, Completed("1"), NOW).inserts
    heard = [(one.payload["webhook"], one.payload["message"]["type"]) for one in told]
    assert heard == [("wh_b", "job.started"), ("wh_a", "job.completed"), ("wh_b", "job.completed")]


def test_the_next_waits_for_the_last_to_the_same_target_however_that_ends() -> None:
    first, second = end(held(), Completed("1"), NOW).inserts
    assert second.spec.after == (first.id,)
    assert (second.spec.after_when, second.status, second.waits) == ("ended", Status.WAITING, 1)
    submitted = first_told(submission.submit(ID, job().spec, "{}", NOW))[1][0]
    assert first.spec.after == (submitted.id,)
    assert (submitted.status, submitted.spec.after) == (Status.QUEUED, ())


def test_ids_come_from_job_target_event_and_rev() -> None:
    [one], [same] = end(running(), Completed("1")).inserts, end(running(), Completed("2")).inserts
    assert one.id == same.id, "decided again, it is the same delivery"
    [other] = end(running(), Failed(error=OOPS)).inserts
    [elsewhere] = end(running(Target("wh_b", USUAL)), Completed("1")).inserts
    [later] = end(replace(running(), rev=9), Completed("1")).inserts
    assert len({one.id, other.id, elsewhere.id, later.id}) == 4


def test_progress_is_told_at_most_once_in_five_seconds() -> None:
    at, now, told = running(), NOW, []
    for _ in range(12):
        change = execution.progress(at, now, Progress(10.0), RULES)
        told.append(len(change.inserts))
        assert (change.job.rev > at.rev) is bool(change.inserts), "only what is told raises the rev"
        at, now = change.job, now + WEBHOOK_PROGRESS_INTERVAL / 4
    assert told == [1, 0, 0, 0] * 3


def test_progress_is_spaced_for_each_target_by_what_that_was_told() -> None:
    first, second = Target("wh_a", USUAL), Target("wh_b", USUAL)
    known = tell(replace(running(first, second), updated_at=NOW), "progress")[0]
    lost = replace(known, told=tuple(one for one in known.told or () if one.target != second.id))
    soon = replace(lost, rev=lost.rev + 1, updated_at=NOW + WEBHOOK_PROGRESS_INTERVAL / 2)
    [told] = tell(soon, "progress")[1]
    assert told.payload["webhook"] == second.id, "the first one is spared, not whoever comes behind it"


def test_progress_is_spaced_by_the_last_progress_whatever_else_is_told() -> None:
    at = tell(replace(running(), updated_at=NOW), "progress")[0]
    for seconds, event, count in (
        (1, "retrying", 1),
        (2, "progress", 0),
        (4, "started", 1),
        (4.999, "progress", 0),
        (5, "progress", 1),
        (9.999, "progress", 0),
        (60, "progress", 1),
    ):
        at = replace(at, rev=at.rev + 1, updated_at=NOW + timedelta(seconds=seconds))
        at, told = tell(at, cast(Occasion, event))
        assert len(told) == count, (seconds, event)


def test_one_that_may_be_pruned_is_not_waited_for() -> None:
    at = running()
    soon, late = (replace(at, updated_at=NOW + DELIVERY_RETENTION - timedelta(seconds=left)) for left in (1, 0))
    assert tell(soon, "retrying")[1][0].spec.after != ()
    assert tell(late, "retrying")[1][0].spec.after == ()
    retention = tell(soon, "retrying")[1][0].spec.retention
    assert retention is not None
    spans = [retention.of(status) for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED)]
    assert all(span is not None and span >= DELIVERY_RETENTION for span in spans), (
        "so the one that is waited for is there"
    )


def test_a_delivery_is_tried_eight_times_with_longer_and_longer_pauses() -> None:
    assert POLICY.max_attempts == 8
    assert [POLICY.delay(n, 1.0) for n in range(7)] == [1, 4, 16, 64, 256, 1024, 4096]
    made = delivery(ID, ALL, {"type": "x"}, NOW)
    assert (made.task, made.queue, made.webhook) == (TASK, QUEUE, None)
    assert is_delivery(made.spec)
    assert made.payload["id"] == f"msg_{ID.hex}"


def test_the_message_tells_the_state_and_neither_arguments_nor_traceback() -> None:
    failed = end(running(metadata={"n": 1}), Failed(error=OOPS)).inserts[0]
    message = failed.payload["message"]
    assert message["data"]["error"] == {"type": "ValueError", "message": "no"}
    assert message["data"]["status"] == "retrying"
    assert message["data"]["metadata"] == {"n": 1}
    assert "retry_at" in message["data"]
    assert "hunter2" not in failed.payload_text
    assert "secret/path" not in failed.payload_text
    started, done = (one.payload["message"]["data"] for one in end(held(), Completed("[1]"), NOW).inserts)
    assert (started["status"], "result" in started) == ("running", False)
    assert (done["status"], done["result"]) == ("completed", [1])


@pytest.mark.parametrize("text", ["x" * (MAX_WEBHOOK_RESULT_BYTES + 1), "ä" * (MAX_WEBHOOK_RESULT_BYTES // 2 + 1)])
def test_a_large_result_is_left_out_and_said_to_be(text: str) -> None:
    result = msgspec.json.encode(text).decode()
    [done] = end(running(), Completed(result)).inserts
    data = done.payload["message"]["data"]
    assert data["result_omitted"] is True
    assert "result" not in data


@pytest.mark.parametrize("ending", [Completed('"\ud83d"'), Failed(error=ErrorInfo("X", "\ud83d"))])
def test_what_no_store_keeps_is_decided_all_the_same(ending: Any) -> None:
    [told] = end(running(), ending).inserts
    assert told.payload["webhook"] == "wh_all", "it is for the store to refuse the change"


def test_a_job_whose_record_has_lost_what_was_told_tells_by_new_deliveries() -> None:
    """As a worker of the version before leaves it, which does not know that field."""
    target, gone = Target("wh_ends", ("failed",)), Failed(error=OOPS, reason=Reason.NON_RETRYABLE)
    first = end(running(target), gone)
    again = actions.retry(first.job, NOW).job
    lost = replace(again, status=Status.RUNNING, worker=WORKER, epoch=9, started_at=NOW, told=None)
    second = end(lost, gone)
    assert types((*first.inserts, *second.inserts)) == ["job.failed"] * 2
    assert first.inserts[0].id != second.inserts[0].id


def test_a_message_is_sent_in_words_and_kept_in_ours() -> None:
    [made] = end(running(retry=Retry(0)), TimedOut(OOPS)).inserts
    message = made.payload["message"]
    assert (message["data"]["status"], message["data"]["reason"]) == ("failed", "timeout")
    sent = message_in_words(message, EMPROPS)
    assert sent == message | {"data": message["data"] | {"status": "timeout"}}
    assert message["data"]["status"] == "failed"
    assert message_in_words(message, HEADRACE) is message
    for other in ({"type": "webhook.test", "data": {"by": "ada"}}, {"data": None}, {"data": {"status": "odd"}}, {}):
        assert message_in_words(other, EMPROPS) == other
