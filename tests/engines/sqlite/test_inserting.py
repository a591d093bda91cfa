"""Insert: what cannot be stored is refused before anything is written, and lines survive being collected."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import Lab
from headrace.core import acts
from headrace.core.change import Applied
from headrace.core.job import ErrorInfo
from headrace.core.outcome import Completed, Failed
from headrace.core.status import Status
from headrace.engine import Duplicated, Inserted, Refused
from headrace.engines.sqlite import SqliteEngine, lines
from headrace.errors import ConfigError, Unstorable


@pytest.mark.parametrize("where", ["task", "queue", "tags", "dedup", "schedule", "customer"])
async def test_half_a_surrogate_pair_is_unstorable_and_spoils_nothing(lab: Lab, where: str) -> None:
    bad = "x\ud800"
    value = (bad,) if where == "tags" else bad
    with pytest.raises(Unstorable):
        await lab.insert(lab.job(), replace(lab.job(), spec=replace(lab.job().spec, **{where: value})))
    assert (await lab.engine.records.ledger()).accepted == 0
    await lab.put()


async def test_half_a_surrogate_pair_in_an_error_is_unstorable(lab: Lab) -> None:
    worker = await lab.worker()
    job = await lab.running(worker)
    with pytest.raises(Unstorable):
        await lab.apply(lab.end(job, Failed(error=ErrorInfo("E", "\udfff"))))
    assert await lab.get(job) == job


@pytest.mark.parametrize("text", ["'\"\\", "\U0001f702", "\\ud800"])
async def test_odd_text_comes_back_to_the_letter(lab: Lab, text: str) -> None:
    job = await lab.put(f"task{text}", queue=text, tags=(text,), dedup=text, payload=f'"{text}"', schedule=text)
    assert await lab.get(job) == job
    (answer,) = await lab.insert(lab.job(f"task{text}", dedup=text))
    assert answer == Duplicated(job)
    worker = await lab.worker()
    (held,) = await lab.claim(worker)
    done = await lab.do(lab.end(held, Completed(f'"{text}"'), started_at=lab.now))
    assert await lab.get(job) == done


async def test_json_nested_deeper_than_sqlite_reads_is_kept(lab: Lab) -> None:
    deep = "[" * 3000 + "]" * 3000
    job = await lab.put(payload=deep)
    (held,) = await lab.claim(await lab.worker())
    assert held.payload_text == deep
    done = await lab.do(lab.end(held, Completed(deep), started_at=lab.now))
    assert (await lab.get(job)).result_text == deep == done.result_text


async def test_a_job_that_went_far_elsewhere_is_kept_whole(lab: Lab) -> None:
    worker = await lab.worker()
    job = await lab.running(worker)
    ended = lab.end(job, Failed(error=ErrorInfo("E", "m"), delay=5.0)).job
    copy = replace(ended, id=lab.new_id(), streak=None)
    (answer,) = await lab.insert(copy)
    assert isinstance(answer, Inserted)
    assert await lab.get(copy.id) == replace(copy, seq=answer.job.seq) == answer.job


async def test_lines_that_were_collected_are_made_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_PROFILES", 3)
    other = lab.engine.another_session()
    await other.open()
    worker = await lab.worker()
    for task in ("a", "b", "c"):
        await other.jobs.insert([lab.job(task)], lab.now)
    (answer,) = await lab.insert(lab.job("d"))
    assert isinstance(answer, Refused)
    assert isinstance(answer.error, ConfigError)
    [held] = await lab.claim(worker, tasks=("a",))
    await lab.do(lab.end(held, Completed(), started_at=lab.now))
    await lab.put("d")
    assert {profile.task for profile in (await lab.engine.documents.profiles()).profiles} == {"b", "c", "d"}
    # The other remembers the line of a task that no longer counts; the place it needs is taken.
    assert isinstance((await other.jobs.insert([lab.job("a")], lab.now))[0], Refused)
    await other.close()


async def test_a_job_that_comes_back_brings_its_profile_along(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_PROFILES", 1)
    cancelled = await lab.cancel(await lab.put("old", dedup="k"))
    await lab.put("new")
    before = await lab.engine.documents.profiles()
    assert [profile.task for profile in before.profiles] == ["new"]
    [verdict] = await lab.apply(acts.retry(cancelled, lab.now))
    assert isinstance(verdict, Applied)
    after = await lab.engine.documents.profiles()
    assert [profile.task for profile in after.profiles] == ["old", "new"]
    assert after.rev > before.rev
    assert [job.id for job in await lab.claim(await lab.worker(), tasks=("old",))] == [cancelled.id]


async def leave_three(lab: Lab) -> None:
    """Three profiles that are live, and that no live job needs."""
    for job in await lab.put_all(*(lab.job(f"t{n}") for n in range(3))):
        await lab.cancel(job)


async def broken_lines(lab: Lab) -> list[str]:
    return [finding.what for finding in (await lab.engine.records.verify("lines")).findings]


async def test_room_for_one_place_is_not_made_of_another_in_the_same_call(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_PROFILES", 4)
    await leave_three(lab)
    answers = await lab.insert(*(lab.job(task) for task in "abcde"))
    assert [type(answer) for answer in answers] == [Inserted] * 4 + [Refused]
    assert await broken_lines(lab) == []
    assert [job.task for job in await lab.claim(await lab.worker())] == ["a", "b", "c", "d"]


async def test_room_for_one_place_is_not_made_of_another_in_a_transaction(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_PROFILES", 4)
    await leave_three(lab)
    async with lab.transactions.transaction() as connection:
        steps = await lab.transactions.inserting([lab.job(task) for task in "ab"], lab.now)
        answers = await lab.transactions.enlist(connection).run(steps)
    assert [type(answer) for answer in answers] == [Inserted] * 2
    assert await broken_lines(lab) == []
    assert [job.task for job in await lab.claim(await lab.worker())] == ["a", "b"]


async def test_room_for_a_customer_is_not_made_of_what_its_profile_stands_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_PROFILES", 4)
    await lab.engine.documents.put_setting("queue:mine", '{"by_customer":true}', 0)
    await leave_three(lab)
    job = await lab.put("resize", queue="mine", customer="a")
    assert await broken_lines(lab) == []
    assert [profile.task for profile in (await lab.engine.documents.profiles()).profiles] == ["resize"]
    assert [held.id for held in await lab.claim(await lab.worker())] == [job.id]


async def test_a_customer_who_is_refused_takes_no_room(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_PROFILES", 2)
    await lab.engine.documents.put_setting("queue:mine", '{"by_customer":true}', 0)
    await lab.put("t")
    # In the order of their queues: the customer's place is looked at first.
    refused, stored = await lab.insert(lab.job("resize", queue="mine", customer="a"), lab.job("other", queue="yours"))
    assert (type(refused), type(stored)) == (Refused, Inserted)


async def test_what_the_profile_of_a_customer_stands_for_is_made_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.engine.documents.put_setting("queue:mine", '{"by_customer":true}', 0)
    first = await lab.put("resize", queue="mine", customer="a")
    assert isinstance(lab.engine, SqliteEngine)
    remove = "DELETE FROM profiles WHERE base IS NULL; UPDATE books SET collected = collected + 1"
    await lab.engine._writer.run(lambda connection: connection.execute(remove).get)
    assert len(await broken_lines(lab)) == 1
    monkeypatch.setattr(lines, "MAX_PROFILES", 2)
    plain = await lab.put("resize", queue="plain")
    worker = await lab.worker()
    assert [job.id for job in await lab.claim(worker)] == [plain.id]
    second = await lab.put("resize", queue="mine", customer="a")
    assert await broken_lines(lab) == []
    assert [job.id for job in await lab.claim(worker)] == [first.id, second.id]


async def test_order_numbers_are_not_given_again_after_a_delete(lab: Lab) -> None:
    job = await lab.cancel(await lab.put())
    assert await lab.engine.jobs.delete({Status.CANCELLED: lab.now}) == 1
    assert (await lab.put()).seq > job.seq
