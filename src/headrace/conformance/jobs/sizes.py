"""Bounds: allowed values are stored whole, and all stores refuse others in the same way."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from headrace.conformance.lab import Lab, Part
from headrace.core import defaults
from headrace.core.attempt import Completed, ErrorInfo, Failed
from headrace.core.entry import Append, Entry, Kind
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.query import Filter
from headrace.core.status import Reason
from headrace.core.webhooks.target import Target
from headrace.engine import Duplicated, Inserted
from headrace.errors import Unstorable

__all__ = ["Bounds"]

HALVES = {"high": "\ud83d", "low": "a\udc00b"}
BAD = {**HALVES, "nul": "a\0b"}

_TEXTS = ("task", "queue", "customer", "dedup", "request_key", "concurrency_key", "schedule", "tags", "payload")
_DOCUMENTS = ("metadata", "requires", "headers", "route", "query", "webhook", "trace")


def placed(place: str, text: str) -> Any:
    """Return the text as this field has it."""
    if place == "tags":
        return ("fine", text)
    if place == "payload":
        return f'{{"k":"{text}"}}'
    if place == "headers":
        return {"k": ("fine", text)}
    if place == "query":
        return (("k", "fine"), ("k", text))
    if place == "webhook":
        return (Target(text, ("completed",)),)
    return {"k": text} if place in _DOCUMENTS else text


def astral(length: int, seed: int = 0) -> str:
    """Return so many characters, each of the maximum number of bytes; hardly compressible."""
    return "".join(chr(0x20000 + (seed + at * 7919) % 40_000) for at in range(length))


class Bounds(Part):
    """What an engine must store and must refuse."""

    @pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
    @pytest.mark.parametrize("place", _TEXTS)
    async def test_text_that_no_store_keeps_is_refused(self, lab: Lab, place: str, bad: str) -> None:
        await self._is_refused(lab, lab.job(**{place: placed(place, bad)}))

    @pytest.mark.parametrize("bad", HALVES.values(), ids=HALVES)
    @pytest.mark.parametrize("place", _DOCUMENTS)
    async def test_documents_with_half_a_character_are_refused(self, lab: Lab, place: str, bad: str) -> None:
        await self._is_refused(lab, lab.job(**{place: placed(place, bad)}))

    @pytest.mark.parametrize("place", ["metadata", "requires", "route", "trace"])
    async def test_a_document_that_cannot_be_written_is_refused(self, lab: Lab, place: str) -> None:
        odd: dict[str, Any] = {place: {"k": object()}}
        await self._is_refused(lab, lab.job(**odd))

    async def test_a_change_that_cannot_be_written_is_refused(self, lab: Lab, worker: UUID) -> None:
        one, two = await lab.running(worker, "one"), await lab.running(worker, "two")
        fine, error = lab.stamp(lab.end(one, Completed("1"))), ErrorInfo("E", "m", None, {"k": object()})
        odd = lab.stamp(lab.end(two, Failed(error=error, reason=Reason.NON_RETRYABLE)))
        with pytest.raises(Unstorable):
            await lab.engine.jobs.apply([fine, odd], lab.now)
        assert await lab.engine.jobs.get([one.id, two.id]) == [one, two]
        await lab.do(fine)

    async def _is_refused(self, lab: Lab, odd: Job) -> None:
        before, after = lab.job(), lab.job()
        with pytest.raises(Unstorable):
            await lab.insert(before, odd, after)
        assert await lab.engine.jobs.get([before.id, odd.id, after.id]) == [None, None, None]
        assert (await lab.engine.records.ledger()).accepted == 0
        with pytest.raises(Unstorable):
            await lab.insert(odd)
        await lab.put_all(before, after)

    @pytest.mark.parametrize("place", [*_DOCUMENTS, "payload"])
    async def test_a_nul_within_json_is_kept(self, lab: Lab, place: str) -> None:
        odd = lab.job(**{place: placed(place, "\\u0000" if place == "payload" else "a\0b")})
        [stored] = await lab.put_all(odd)
        assert await lab.get(odd) == stored == replace(odd, seq=stored.seq)

    @pytest.mark.parametrize("bad", HALVES.values(), ids=HALVES)
    async def test_a_change_with_half_a_character_is_refused(self, lab: Lab, worker: UUID, bad: str) -> None:
        one, two = await lab.running(worker, "one"), await lab.running(worker, "two")
        fine = lab.stamp(lab.end(one, Completed("1")))
        for odd in (
            lab.end(two, Failed(error=ErrorInfo("E", bad), reason=Reason.NON_RETRYABLE)),
            lab.end(two, Completed(f'"{bad}"')),
        ):
            with pytest.raises(Unstorable):
                await lab.engine.jobs.apply([fine, lab.stamp(odd)], lab.now)
            assert await lab.engine.jobs.get([one.id, two.id]) == [one, two]
            assert await lab.attempts(one) == await lab.attempts(two) == []
        await lab.do(fine)

    async def test_a_nul_in_an_error_is_kept(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        failed = await lab.finish(job, Failed(error=ErrorInfo("E", "a\0b"), reason=Reason.NON_RETRYABLE))
        assert failed.error == (await lab.get(job)).error == ErrorInfo("E", "a\0b")

    @pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
    async def test_entries_with_text_that_no_store_keeps_are_refused_whole(self, lab: Lab, bad: str) -> None:
        job = await lab.running(await lab.worker())
        assert job.worker is not None
        good = Entry(Kind.STEP, 1, 1, '"x"', lab.now, "good")
        for odd in (Entry(Kind.STEP, 1, 2, '"x"', lab.now, bad), Entry(Kind.STEP, 1, 2, f'"{bad}"', lab.now, "odd")):
            with pytest.raises(Unstorable):
                await lab.engine.entries.append([Append(job.id, job.worker, job.epoch, (good, odd))], lab.now)
            assert await lab.engine.entries.tail(job.id, Kind.STEP) == []

    @pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
    async def test_settings_with_text_that_no_store_keeps_are_refused(self, lab: Lab, bad: str) -> None:
        before = await lab.engine.documents.settings()
        for key, value in ((f"queue:{bad}", "{}"), ("queue:q", f'{{"paused_by":"{bad}"}}')):
            with pytest.raises(Unstorable):
                await lab.engine.documents.put_setting(key, value, 0)
        assert await lab.engine.documents.settings() == before
        assert await lab.engine.documents.settings(f"queue:{bad}") == []

    @pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
    async def test_nothing_is_found_by_text_that_no_store_keeps(self, lab: Lab, bad: str) -> None:
        await lab.put("a", queue="a", tags=("a",), schedule="a", payload='{"a":"b"}')
        one = frozenset({bad})
        several = (Filter(task=one), Filter(queue=one), Filter(customer=one), Filter(fingerprint=one))
        filters = (*several, Filter(tag=bad), Filter(schedule=bad), Filter(text=bad))
        for filter in filters:
            assert (await lab.engine.records.find(filter, lab.now)).items == ()
            assert await lab.engine.records.count_matching(filter, lab.now) == 0

    @pytest.mark.parametrize("make", [astral, lambda length, seed=0: "x" * (length - 1) + str(seed % 10)])
    async def test_the_longest_of_everything_is_kept_and_found(self, lab: Lab, make: Any) -> None:
        tags = tuple(make(defaults.MAX_TAG_CHARACTERS - 2, seed) + f"{seed:02}" for seed in range(defaults.MAX_TAGS))
        document = {"k": "x" * (defaults.MAX_DOCUMENT_BYTES - len('{"k":""}'))}
        payload = '{"k":"' + "x" * (defaults.MAX_PAYLOAD_BYTES - len('{"k":""}')) + '"}'
        asked: dict[str, Any] = {
            "queue": make(defaults.MAX_NAME_CHARACTERS),
            "tags": tags,
            "metadata": document,
            "requires": document,
        }
        asked |= {
            one: make(defaults.MAX_KEY_CHARACTERS) for one in ("customer", "dedup", "request_key", "concurrency_key")
        }
        worker, task = await lab.worker(), make(defaults.MAX_NAME_CHARACTERS, 3)
        job = await lab.put(
            task, payload=payload, schedule=make(defaults.MAX_NAME_CHARACTERS, 4), trace=document, **asked
        )
        assert await lab.get(job) == job
        [again] = await lab.insert(lab.job(task, dedup=asked["dedup"], customer=asked["customer"]))
        assert again == Duplicated(job)
        for filter in (
            Filter(task=frozenset({task})),
            Filter(queue=frozenset({job.queue})),
            Filter(customer=frozenset({asked["customer"]})),
            Filter(tag=tags[-1]),
            Filter(schedule=job.schedule),
        ):
            assert [one.id for one in (await lab.engine.records.find(filter, lab.now)).items] == [job.id]
        [other] = await lab.insert(
            lab.job(
                task,
                **asked
                | {
                    "dedup": make(defaults.MAX_KEY_CHARACTERS - 1),
                    "request_key": make(defaults.MAX_KEY_CHARACTERS - 1),
                },
            )
        )
        assert isinstance(other, Inserted)
        taken = await lab.claim(worker)
        assert {one.id for one in taken} == {job.id, other.job.id}
        running = await lab.start(next(one for one in taken if one.id == job.id))
        result = msgspec.json.encode("x" * (defaults.MAX_RESULT_BYTES - 2)).decode()
        done = await lab.finish(running, Completed(result))
        assert done.result_text == result
        by = make(defaults.MAX_NOTE_CHARACTERS)
        gone = await lab.do(actions.discard(done, lab.now, by=by, note=by))
        [event] = (await lab.engine.records.history(gone.id)).events
        assert (event.by, event.note) == (by, by)

    async def test_the_first_and_the_last_moment_are_kept(self, lab: Lab) -> None:
        first, last = defaults.MIN_MOMENT, defaults.MAX_MOMENT
        jobs = (
            replace(lab.job(delay=60), available_at=last, arrived_at=last),
            replace(lab.job(), not_after=last, act_by=last),
            replace(lab.job(), not_after=first, act_by=first),
        )
        parked, long, missed = await lab.put_all(*jobs)
        assert await lab.engine.jobs.get([job.id for job in jobs]) == [parked, long, missed]
        assert [job.id for job in await lab.claim(await lab.worker())] == [long.id]
        assert await lab.engine.jobs.promote(lab.now) == 0
        assert [job.id for job in await lab.overdue()] == [missed.id]
