"""Contents: a store returns exactly what was stored."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.conformance.lab import BEGIN, Lab, Part
from headrace.core.attempt import Completed, ErrorInfo, Failed, Progress
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution
from headrace.core.lifecycle.retention import Kept
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Reason
from headrace.core.webhooks.target import EVENTS, Target
from headrace.engine import Inserted

__all__ = ["Contents"]

STRANGE = "ä ß 漢字 🜂 👩‍👩‍👧 e\u0301 \u200b \u2028 \ufeff ' \" \\ \\u0000 % _ ; -- \t\r\n"
"""Text that has broken stores: astral, combining, invisible, quoting, line ends."""

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_NUMBER = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _NUMBER | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
_OBJECT = st.dictionaries(_TEXT, _JSON, max_size=3)
_NAMES = st.dictionaries(_TEXT, _TEXT, max_size=3)
_VALUES = st.dictionaries(_TEXT, st.lists(_TEXT, max_size=3).map(tuple), max_size=3)
_MOMENT = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
_RETRY = st.builds(
    Retry,
    st.integers(0, 100),
    backoff=st.sampled_from(["exponential", "fixed", lambda retry, error: 1.0])
    | st.lists(st.floats(0, 1e6), min_size=1, max_size=4),
    initial=st.floats(0, 1e6),
    factor=st.floats(1, 100),
    jitter=st.booleans(),
    retry_on=st.lists(_TEXT, max_size=2),
    give_up_on=st.lists(_TEXT, max_size=2),
)
_SPEC = st.fixed_dictionaries(
    {},
    optional={
        "queue": _TEXT,
        "priority": st.integers(0, 100),
        "retry": _RETRY,
        "timeout": st.none() | st.floats(0.001, 1e6),
        "heartbeat": st.none() | st.floats(0.1, 1e6),
        "retention": st.none() | st.builds(Kept, completed=st.none() | st.floats(0, 1e9), failed=st.floats(0, 1e9)),
        "tags": st.lists(_TEXT, max_size=3).map(tuple),
        "metadata": _OBJECT,
        "customer": _TEXT,
        "headers": _VALUES,
        "route": _OBJECT,
        "query": st.lists(st.tuples(_TEXT, _TEXT), max_size=3).map(tuple),
        "requires": _OBJECT,
        "dedup": _TEXT,
        "request_key": _TEXT,
        "request_hash": _TEXT,
        "concurrency_key": _TEXT,
        "parent": st.uuids(),
        "root": st.uuids(),
        "batch": st.uuids(),
        "after": st.lists(st.uuids(), max_size=2).map(tuple),
        "rerun_of": st.uuids(),
        "schedule": _TEXT,
        "fire_at": _MOMENT,
        "webhook": st.lists(st.builds(Target, _TEXT, st.just(EVENTS), _TEXT | st.none()), max_size=2).map(tuple),
        "trace": _NAMES,
    },
)

_FULL: dict[str, Any] = {
    "queue": STRANGE,
    "priority": 100,
    "retry": Retry(7, backoff=(5, 15.5, 30), cap=20, jitter=False, retry_on=("ValueError", "a.B"), give_up_on=("X",)),
    "timeout": 0.25,
    "heartbeat": 0.5,
    "remote_heartbeat": 60.0,
    "retention": Kept(completed=0.5, cancelled=1e9),
    "tags": ("one", STRANGE, "one", ""),
    "metadata": {"deep": [{"a": [1, 2.5, None, True, STRANGE]}], "": {}, STRANGE: [], "big": 2**53, "neg": -1e-9},
    "customer": STRANGE,
    "headers": {"x-one": (STRANGE,), "accept": ("text/html", "*/*", "text/html"), "": ()},
    "route": {"id": 7},
    "query": (("q", "b"), (STRANGE, "1"), ("q", "a"), ("q", "")),
    "requires": {"gpu": True, "memory": {"min": 4.5}, "region": {"in": ["eu", "us"]}},
    "dedup": STRANGE,
    "dedup_for": 0.25,
    "on_duplicate": "replace",
    "request_key": STRANGE,
    "request_hash": "00ff",
    "concurrency_key": STRANGE,
    "schedule": "nightly",
    "fire_at": BEGIN + timedelta(microseconds=1),
    "webhook": (Target("wh_1", EVENTS, STRANGE), Target(STRANGE, ())),
    "trace": {"traceparent": "00-1-2-01"},
    "after_when": "ended",
    "on_parent_failure": "fail",
}


class Contents(Part):
    """What is read equals what was stored."""

    async def test_every_field_of_a_submission_comes_back(self, lab: Lab) -> None:
        family = {name: lab.new_id() for name in ("parent", "root", "batch", "rerun_of")}
        others = [await lab.put("one"), await lab.put("two")]
        after = tuple(other.id for other in others)
        job = await lab.put(STRANGE, after=after, waits=2, not_after=99.5, **family, **_FULL)
        assert set(type(job.spec).__struct_fields__) <= {"task", "created_at", "after", *family, *_FULL}, (
            "a field of Spec is not tried here"
        )
        assert await lab.get(job) == job

    @pytest.mark.parametrize("name", sorted(_FULL))
    async def test_each_field_comes_back_by_itself(self, lab: Lab, name: str) -> None:
        job = await lab.put(**{name: _FULL[name]})
        assert await lab.get(job) == job

    @pytest.mark.parametrize(
        "text",
        [
            '{"a" : 1,  "a":2 }',
            '{"z":1,"a":1.0,"e":1e5,"big":123456789012345678901234567890}',
            '{"nul":"\\u0000","pair":"\\ud83d\\ude00","half":"\\ud83d"}',
            f'{{"text":"{STRANGE[:40].split(chr(39))[0]}"}}',
            '{"text":"' + "x" * (128 * 1024 - 11) + '"}',
            '{"text":"' + "🜂" * (32 * 1024 - 4) + '"}',
        ],
        ids=["spaces", "numbers", "escapes", "unicode", "128KiB", "128KiB-astral"],
    )
    async def test_payload_and_result_are_kept_to_the_letter(self, lab: Lab, text: str) -> None:
        job = await lab.running(await lab.worker(), payload=text)
        done = await lab.finish(job, Completed(text))
        assert (done.payload_text, done.result_text) == (text, text)

    async def test_a_result_of_a_mebibyte_is_kept(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        text = '"' + "r" * (1024 * 1024 - 2) + '"'
        await lab.finish(job, Completed(text))

    async def test_large_metadata_is_kept(self, lab: Lab) -> None:
        job = await lab.put(metadata={f"key {n}": STRANGE * 10 for n in range(300)})
        assert await lab.get(job) == job

    async def test_errors_and_progress_are_kept_whole(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        report = Progress(33.25, STRANGE, "step", lab.at(1.000001), {"deep": [1, {STRANGE: None}], "n": 2**53})
        job = await lab.do(execution.progress(job, lab.now, report, lab.rules))
        assert job.progress == report
        error = ErrorInfo(STRANGE, STRANGE, "line\n" * 1000, {"deep": [1, {"x": STRANGE}]})
        failed = await lab.finish(job, Failed(error=error, reason=Reason.INVALID_PAYLOAD))
        assert failed.error == error
        [attempt] = await lab.attempts(job)
        assert attempt.error == error

    async def test_who_did_what_is_kept_to_the_letter(self, lab: Lab) -> None:
        job = await lab.put()
        await lab.do(actions.resolve(job, lab.now, result_text="1", by=STRANGE, note=STRANGE))
        [event] = (await lab.engine.records.history(job.id)).events
        assert (event.verb, event.at, event.by, event.note) == ("resolve", lab.now, STRANGE, STRANGE)

    async def test_moments_are_exact_to_the_microsecond(self, lab: Lab) -> None:
        for micro in (0, 1, 999_999):
            lab.now = lab.now.replace(microsecond=micro)
            job = await lab.put(not_after=1e9)
            assert await lab.get(job) == job

    async def test_moments_given_in_another_zone_are_the_same_moments(self, lab: Lab) -> None:
        lab.now = BEGIN.astimezone(timezone(timedelta(hours=5, minutes=30)))
        job = await lab.put()
        found = await lab.get(job)
        assert found.created_at == found.available_at == BEGIN
        assert found.created_at.utcoffset() is not None

    def test_any_record_comes_back(self, tmp_path: Path) -> None:
        lab = self.lab(tmp_path)
        with asyncio.Runner() as loop:

            @settings(
                max_examples=25,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(st.lists(st.tuples(_TEXT, _OBJECT.map(str), _SPEC), min_size=1, max_size=6))
            def check(drafts: list[tuple[str, str, dict[str, Any]]]) -> None:
                jobs = [lab.job(task, payload=payload, **spec) for task, payload, spec in drafts]
                loop.run(come_back(jobs))

            async def come_back(jobs: list[Job]) -> None:
                answers = await lab.insert(*jobs)
                fresh = [answer.job for answer in answers if isinstance(answer, Inserted)]
                assert fresh == [
                    replace(job, seq=answer.job.seq)
                    for job, answer in zip(jobs, answers, strict=True)
                    if isinstance(answer, Inserted)
                ]
                assert await lab.engine.jobs.get([job.id for job in fresh]) == fresh

            loop.run(lab.engine.open())
            try:
                check()
            finally:
                loop.run(lab.engine.close())
