"""The record: what it shows, and how much of an error is kept."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.core.attempt import Attempt, Completed, ErrorInfo, Event, History
from headrace.core.job import Job, Spec, spec_of
from headrace.core.status import ENDED, HELD, Outcome, Status
from headrace.core.webhooks.target import Target
from tests.core.stand import ID, NOW, OOPS, WORKER, at, end, running, stand, submitted

RECORD = {
    *("id", "task", "queue", "tags", "metadata", "customer"),
    *("payload", "headers", "route", "query", "requires"),
    *("status", "reason", "rev", "epoch", "attempt", "charged", "unstarted_losses", "redrives", "worker", "progress"),
    *("suspect", "spared"),
    *(
        "priority",
        "asked_queue",
        "asked_priority",
        "priority_band",
        "max_attempts",
        "retry",
        "timeout",
        "heartbeat",
        "remote_heartbeat",
        "retention",
        "available_at",
        "not_after",
        "dedup",
        "dedup_for",
        "on_duplicate",
    ),
    *("request_key", "request_hash", "concurrency_key"),
    *(
        "parent",
        "root",
        "batch",
        "after",
        "after_when",
        "on_parent_failure",
        "waits",
        "rerun_of",
        "schedule",
        "fire_at",
    ),
    *("result", "error", "fingerprint", "failed_at", "webhook", "trace", "seq", "arrived_at", "timeout_at"),
    *("created_at", "assigned_at", "accepted_at", "started_at", "first_started_at", "finished_at"),
    *("cancel_requested_at", "updated_at"),
}


@pytest.mark.parametrize("status", sorted(Status))
def test_the_record_has_every_field_in_every_status(status: Status) -> None:
    record = stand(status).to_dict()
    assert record.keys() == RECORD
    assert json.loads(json.dumps(record)) == record


def test_the_record_shows_plain_values() -> None:
    record = end(running(tags=("a",)), Completed('{"x":[1]}'), now=at(1)).job.to_dict()
    assert record["id"] == str(ID)
    assert record["status"] == "completed"
    assert (record["payload"], record["result"], record["max_attempts"]) == ({"n": 1}, {"x": [1]}, 4)
    assert record["created_at"] == "2030-05-06T07:08:09.123456Z"
    assert record["timeout_at"] == "2030-05-06T07:38:09.123456Z"
    assert record["progress"]["percent"] == 100.0
    assert record["retry"]["max_retries"] == 3


def test_the_history_joins_the_record_when_asked() -> None:
    attempt = Attempt(number=1, epoch=1, outcome=Outcome.FAILED, finished_at=NOW, worker=WORKER, error=OOPS)
    record = submitted().to_dict(History((attempt,), (Event("cancel", NOW, "ann"),)))
    assert record.keys() == RECORD | {"attempts", "events"}
    assert record["attempts"][0]["error"]["message"] == "it broke"
    assert (record["attempts"][0]["count"], record["attempts"][0]["started_at"]) == (1, None)
    event = {"verb": "cancel", "at": "2030-05-06T07:08:09.123456Z", "by": "ann", "note": None, "details": None}
    assert record["events"] == [event]


def test_the_record_says_what_holds_and_what_was_asked_for() -> None:
    job = replace(submitted(queue="a", priority=7), moved_to="b", reprioritised_to=0)
    for record in (job.to_dict(), job):
        said = (record["queue"], record["asked_queue"], record["priority"], record["asked_priority"])
        assert said == ("b", "a", 0, 7)


def test_short_words_of_a_job() -> None:
    job = submitted(queue="q", priority=7, tags=("t",), metadata={"m": 1}, requires={"g": 1}, dedup="k", timeout=5.0)
    assert (job.task, job.queue, job.priority, job.tags, job.metadata) == ("work", "q", 7, ("t",), {"m": 1})
    assert (job.requires, job.dedup, job.timeout, job.max_attempts) == ({"g": 1}, "k", 5.0, 4)
    assert (job.payload, job.result, job.timeout_at) == ({"n": 1}, None, None)


@pytest.mark.parametrize("status", sorted(Status))
def test_held_and_ended_follow_from_the_status(status: Status) -> None:
    job = stand(status)
    assert (job.held, job.ended) == (status in HELD, status in ENDED)
    assert (job.worker is not None) == job.held


@pytest.mark.parametrize("status", sorted(Status))
def test_a_job_survives_being_encoded(status: Status) -> None:
    job = stand(status, metadata={"ü": ["🜂"]}, tags=("a",))
    assert msgspec.json.decode(msgspec.json.encode(job), type=Job) == job


def test_folding_counts_and_keeps_the_first() -> None:
    first = Attempt(number=3, epoch=5, outcome=Outcome.SNOOZED, finished_at=NOW, started_at=at(-1), worker=WORKER)
    second = Attempt(number=3, epoch=7, outcome=Outcome.SNOOZED, finished_at=at(9), started_at=at(8))
    folded = first.fold(second).fold(second)
    assert folded == replace(first, count=3, finished_at=at(9))


# Errors


def size(error: ErrorInfo) -> int:
    return len(msgspec.json.encode(error))


def test_an_error_that_fits_is_kept_whole() -> None:
    error = ErrorInfo("E", "message", "trace", {"a": [1]})
    assert error.cut(1000) == error


def test_details_go_before_the_traceback_is_touched() -> None:
    error = ErrorInfo("E", "message", "t" * 500, {"a": "x" * 600})
    assert error.cut(1000) == ErrorInfo("E", "message", "t" * 500)


def test_details_that_are_a_number_or_a_word_stay() -> None:
    few = {"status": 409, "class": "shop.Broken", "last": None}
    error = ErrorInfo("E", "message", "t" * 5000, {**few, "data": "x" * 600, "causes": [{"type": "E"}]})
    assert error.cut(1000).details == few
    assert size(error.cut(1000)) <= 1000
    many = {f"n{number}": number for number in range(100)}
    assert ErrorInfo("E", "message", "t" * 5000, many).cut(1000).details is None


def test_the_middle_of_the_traceback_goes_next() -> None:
    cut = ErrorInfo("E", "message", "begin" + "t" * 5000 + "end").cut(1000)
    assert cut.message == "message"
    assert cut.traceback is not None
    assert cut.traceback.startswith("begin")
    assert cut.traceback.endswith("end")
    assert " … " in cut.traceback
    assert 600 < size(cut) <= 1000


def test_then_the_middle_of_the_message() -> None:
    cut = ErrorInfo("E", "begin" + "m" * 5000 + "end").cut(1000)
    assert cut.message.startswith("begin")
    assert cut.message.endswith("end")
    assert 600 < size(cut) <= 1000


def test_what_is_not_json_is_shown_and_half_characters_are_spelled_out() -> None:
    error = ErrorInfo("E", "file \udcff", details={"at": NOW, "what": Exception, "n": 1}).cut(1000)
    assert error.message == "file \\udcff"
    assert error.details == {"at": "2030-05-06T07:08:09.123456Z", "what": "<class 'Exception'>", "n": 1}
    loop: dict[str, Any] = {}
    loop["self"] = loop
    assert ErrorInfo("E", "m", details=loop).cut(1000).details is None


@given(st.text(), st.text(), st.none() | st.text(), st.integers(100, 3000), st.integers(1, 300))
@example("\x00" * 30, "\x01" * 900, "🜂" * 900, 100, 30)
@settings(deadline=None)
def test_a_cut_error_always_fits(type_: str, message: str, trace: str | None, limit: int, times: int) -> None:
    error = ErrorInfo(type_ * times, message * times, trace and trace * times, {"k": message * times}).cut(limit)
    assert size(error) <= limit
    assert error.cut(limit) == error


# What was asked for


def test_headers_and_queries_have_several_values_in_their_order() -> None:
    query = (("q", "2"), ("flag", ""), ("q", "1"))
    spec = Spec(task="t", created_at=NOW, headers={"accept": ("b", "a", "b")}, query=query)
    assert spec_of(msgspec.json.encode(spec).decode()) == spec
    record = replace(submitted(), spec=spec).to_dict()
    assert (record["headers"], record["query"]) == ({"accept": ["b", "a", "b"]}, [["q", "2"], ["flag", ""], ["q", "1"]])


def test_a_query_that_was_stored_by_name_is_read_as_pairs() -> None:
    text = msgspec.json.encode({"task": "t", "created_at": NOW, "query": {"a": ["1", "2"], "flag": [""]}})
    job = replace(submitted(), spec=spec_of(text.decode()))
    assert job.query == (("a", "1"), ("a", "2"), ("flag", ""))
    assert job.to_dict()["query"] == job["query"] == [["a", "1"], ["a", "2"], ["flag", ""]]


def test_the_version_before_can_read_a_spec_with_webhooks() -> None:
    spec = Spec(task="t", created_at=NOW, webhook=(Target("wh_1", ("completed",)),))
    text = msgspec.json.encode(spec)
    assert spec_of(text.decode()) == spec
    before = msgspec.defstruct("Before", [("task", str), ("webhook", dict[str, Any] | None, None)])
    assert msgspec.json.decode(text, type=before) == before("t")
    assert replace(submitted(), spec=spec).to_dict()["webhook"] == [{"id": "wh_1", "events": ["completed"]}]


@pytest.mark.parametrize("text", ["[]", "{}", '{"task":7}', '{"task":"t","created_at":"soon","headers":{"a":"b"}}'])
def test_what_is_no_spec_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        spec_of(text)


# How long an attempt took


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.LOST}))
def test_an_attempt_took_what_was_measured_or_the_time_from_its_start_to_its_end(outcome: Outcome) -> None:
    attempt = Attempt(number=1, epoch=1, outcome=outcome, started_at=at(1), finished_at=at(3.5))
    assert attempt.timed() == replace(attempt, processing_time=2.5)
    measured = replace(attempt, processing_time=0.25)
    assert History((attempt, measured)).timed().attempts == (attempt.timed(), measured)


@pytest.mark.parametrize("fields", [{"started_at": None}, {"count": 2}, {"outcome": Outcome.LOST}])
def test_how_long_others_took_is_not_known(fields: dict[str, Any]) -> None:
    attempt = Attempt(number=1, epoch=1, outcome=Outcome.SNOOZED, started_at=at(1), finished_at=at(3))
    assert replace(attempt, **fields).timed().processing_time is None
