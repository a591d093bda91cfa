"""Insert: what cannot be stored is refused before anything is written, and lines survive being collected."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import pytest
from msgspec.structs import replace

from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed, ErrorInfo, Failed
from headrace.core.change import Applied
from headrace.core.job import Job, Spec
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.retry import Retry
from headrace.core.lifecycle.submission import submit
from headrace.core.limits import profiles
from headrace.core.stats.verification import BOOKS
from headrace.core.status import Status
from headrace.engine import Duplicated, InsertAnswer, Inserted, Refused
from headrace.engines.sql.encoding import Micros
from headrace.engines.sqlite import SqliteEngine
from headrace.engines.sqlite.jobs.insert import Insertion
from headrace.engines.sqlite.jobs.rows import row_of_new
from headrace.engines.sqlite.store import thread
from headrace.errors import ConfigError, StoreLost, Unavailable, Unstorable


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
    monkeypatch.setattr(profiles, "MAX_PROFILES", 3)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", 3)
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
    monkeypatch.setattr(profiles, "MAX_PROFILES", 1)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", 1)
    cancelled = await lab.cancel(await lab.put("old", dedup="k"))
    await lab.put("new")
    before = await lab.engine.documents.profiles()
    assert [profile.task for profile in before.profiles] == ["new"]
    [verdict] = await lab.apply(actions.retry(cancelled, lab.now))
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
    monkeypatch.setattr(profiles, "MAX_PROFILES", 4)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", 4)
    await leave_three(lab)
    answers = await lab.insert(*(lab.job(task) for task in "abcde"))
    assert [type(answer) for answer in answers] == [Inserted] * 4 + [Refused]
    assert await broken_lines(lab) == []
    assert [job.task for job in await lab.claim(await lab.worker())] == ["a", "b", "c", "d"]


async def test_room_for_one_place_is_not_made_of_another_in_a_transaction(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "MAX_PROFILES", 4)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", 4)
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
    monkeypatch.setattr(profiles, "MAX_PROFILES", 4)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", 4)
    await lab.engine.documents.put_setting("queue:mine", '{"by_customer":true}', 0)
    await leave_three(lab)
    job = await lab.put("resize", queue="mine", customer="a")
    assert await broken_lines(lab) == []
    assert [profile.task for profile in (await lab.engine.documents.profiles()).profiles] == ["resize"]
    assert [held.id for held in await lab.claim(await lab.worker())] == [job.id]


async def test_a_customer_who_is_refused_takes_no_room(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "MAX_PROFILES", 2)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", 2)
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
    monkeypatch.setattr(profiles, "MAX_PROFILES", 2)
    monkeypatch.setattr(profiles, "MAX_CUSTOMERS_PROFILES", 2)
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


# -- one job that comes alone


async def begin(lab: Lab, job: Job) -> InsertAnswer | BaseException | bool | None:
    """What becomes of the job on the short way; False: it was not begun."""
    assert isinstance(lab.engine, SqliteEngine)
    answer = asyncio.get_running_loop().create_future()
    begun = lab.engine.jobs.insert_one(job, lab.now, answer.set_result)
    return await answer if begun else False


def at_once(lab: Lab, **spec: Any) -> Job:
    """A job as programs submit most: all its moments are one."""
    return submit(lab.new_id(), Spec(task="work", created_at=lab.now, **spec), "{}", lab.now)


async def rows_of(lab: Lab, job: Job) -> list[list[object]]:
    """All that is stored of a job but its number and its id, with the types that SQLite gives to it."""
    assert isinstance(lab.engine, SqliteEngine)

    def read(connection: apsw.Connection) -> list[list[object]]:
        seq = connection.execute("SELECT seq FROM jobs WHERE id = ?", (job.id.bytes,)).get
        found = list[list[object]]()
        for table in ("jobs", "bodies", "labels"):
            columns = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
            names = [name for (name,) in columns if name not in ("seq", "id")]
            values = ", ".join(f"typeof({name}), {name}" for name in names)
            found.append(list(connection.execute(f"SELECT {values} FROM {table} WHERE seq = ?", (seq,))))
        return found

    return await lab.engine._reader.run(read)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "payload": '{"a": "\u00e4\\u0000"}',
            "priority": 3,
            "metadata": {"k": 1},
            "timeout": 1.5,
            "retry": Retry(max_retries=7),
        },
        {"delay": 60, "not_after": 90},
        {"concurrency_key": "k", "trace": {"traceparent": "t"}},
        {"queue": "q\u00fc", "requires": {"gpu": True}},
    ],
)
async def test_a_lone_job_is_stored_to_the_letter_as_any_other(lab: Lab, options: dict[str, Any]) -> None:
    known, lone = lab.job(**options), lab.job(**options)
    await lab.insert(known)
    answer = await begin(lab, lone)
    assert isinstance(answer, Inserted)
    assert answer.job == await lab.get(lone)
    assert answer.job == replace(lone, seq=answer.job.seq)
    assert await rows_of(lab, lone) == await rows_of(lab, known)
    assert sum([(await lab.engine.records.verify(book)).wrong for book in BOOKS]) == 0


@pytest.mark.parametrize("options", [{}, {"priority": 3, "metadata": {"k": 1}, "queue": "q\u00fc"}])
async def test_a_job_in_line_at_once_is_stored_to_the_letter_as_any_other(lab: Lab, options: dict[str, Any]) -> None:
    known, *lone = (at_once(lab, **options) for _ in range(4))
    await lab.insert(known)
    asked = list[str]()

    def trace(cursor: apsw.Cursor, text: str, values: object) -> bool:
        asked.append(text)
        return True

    assert isinstance(lab.engine, SqliteEngine)
    await lab.engine._writer.run(lambda connection: setattr(connection, "exec_trace", trace))
    for job in lone:  # the first goes by the statement for any lone job, and leaves its number for the next
        answer = await begin(lab, job)
        assert isinstance(answer, Inserted)
        assert answer.job == replace(job, seq=answer.job.seq) == await lab.get(job)
        assert await rows_of(lab, job) == await rows_of(lab, known)
    assert [text.split()[2] for text in asked] == ["lone_arrival", "plain_arrival", "plain_arrival"]
    assert sum([(await lab.engine.records.verify(book)).wrong for book in BOOKS]) == 0


async def test_a_number_that_another_took_is_not_given_again(lab: Lab) -> None:
    """Whoever came between: a batch of this session, or another session."""
    other = lab.engine.another_session()
    await other.open()
    await lab.put()
    numbers = list[int]()
    for number in range(6):
        answer = await begin(lab, at_once(lab))
        assert isinstance(answer, Inserted)
        numbers.append(answer.job.seq)
        if number % 3 == 1:
            numbers.append((await lab.put()).seq)
        if number % 3 == 2:
            [stored] = await other.jobs.insert([lab.job()], lab.now)
            assert isinstance(stored, Inserted)
            numbers.append(stored.job.seq)
    await other.close()
    assert numbers == list(range(2, 2 + len(numbers)))
    assert sum([(await lab.engine.records.verify(book)).wrong for book in BOOKS]) == 0


async def counted(lab: Lab) -> int:
    """Up to which number the books have counted."""
    assert isinstance(lab.engine, SqliteEngine)
    found: int = await lab.engine._writer.run(lambda connection: connection.execute("SELECT last_seq FROM books").get)
    return found


async def test_lone_jobs_are_counted_by_whoever_writes_the_books_next(lab: Lab) -> None:
    await lab.put()
    jobs = [at_once(lab) for _ in range(4)]
    for job in jobs:
        assert isinstance(await begin(lab, job), Inserted)
    assert await counted(lab) == 2, "the first of them had to look; the others left the books alone"
    assert (await lab.engine.records.ledger()).accepted == 5
    await lab.put()
    assert await counted(lab) == 6
    assert (await lab.engine.records.ledger()).accepted == 6


async def test_numbers_of_lone_jobs_are_not_given_again_after_a_delete(lab: Lab) -> None:
    """All of them are removed, those that were not counted yet as well."""
    known = await lab.put()
    jobs = [at_once(lab) for _ in range(3)]
    for job in jobs:
        assert isinstance(await begin(lab, job), Inserted)
    assert await counted(lab) < 4
    for job in (known, *jobs):
        await lab.cancel(await lab.get(job))
    assert await lab.engine.jobs.delete({Status.CANCELLED: lab.now}) == 4
    assert await counted(lab) == 4
    ledger = await lab.engine.records.ledger()
    assert (ledger.accepted, ledger.pruned, ledger.unaccounted) == (4, 4, 0)
    answer = await begin(lab, at_once(lab))
    assert isinstance(answer, Inserted)
    assert answer.job.seq == 5
    assert (await lab.put()).seq == 6
    assert sum([(await lab.engine.records.verify(book)).wrong for book in BOOKS]) == 0


async def test_lone_jobs_are_counted_when_the_session_is_closed(lab: Lab) -> None:
    other = lab.engine.another_session()
    await other.open()
    mine = Lab(lambda: other, lab.host, lab.rules)
    await other.jobs.insert([at_once(lab)], lab.now)
    for _ in range(3):
        assert isinstance(await begin(mine, at_once(lab)), Inserted)
    await other.close()
    assert await counted(lab) == 4


async def test_a_number_beyond_the_next_is_not_given(lab: Lab) -> None:
    """A backup that is restored into the file takes numbers back that a session has seen."""
    await lab.put()
    backup = apsw.Connection(":memory:")
    assert isinstance(lab.engine, SqliteEngine)

    def copy(into: apsw.Connection, of: apsw.Connection) -> None:
        with into.backup("main", of, "main") as copying:
            while not copying.done:
                copying.step()

    await lab.engine._writer.run(lambda connection: copy(backup, connection))
    for _ in range(3):
        assert isinstance(await begin(lab, at_once(lab)), Inserted)
    await lab.engine._writer.run(lambda connection: copy(connection, backup))
    answer = await begin(lab, at_once(lab))
    assert isinstance(answer, Inserted)
    assert answer.job.seq == 2
    assert sum([(await lab.engine.records.verify(book)).wrong for book in BOOKS]) == 0


async def test_lone_jobs_are_listed_wherever_their_numbers_are(lab: Lab) -> None:
    """Where one block follows another, and where one span of time follows another within a block."""
    assert isinstance(lab.engine, SqliteEngine)
    lists = (
        "SELECT count(*) FROM jobs j WHERE NOT EXISTS (SELECT 1 FROM subqueue_blocks b WHERE b.subqueue = j.subqueue"
        " AND b.block = j.seq >> 10) OR NOT EXISTS (SELECT 1 FROM time_blocks t WHERE t.block = j.seq >> 12 AND"
        " t.bucket = j.created_at >> 29)"
    )
    await lab.put(queue="second")
    await lab.put_all(*(lab.job() for _ in range(1000)))
    for number in range(60):
        assert isinstance(await begin(lab, at_once(lab, queue=("default", "second")[number % 2])), Inserted)
        lab.later(300.0 if number % 10 == 9 else 0.0)
    assert await lab.engine._reader.run(lambda connection: connection.execute(lists).get) == 0


async def test_jobs_that_share_all_but_id_and_payload_have_the_rows_of_any_other(lab: Lab) -> None:
    first, other = lab.job(), lab.job(dedup="k", queue="other")
    alike = [replace(first, id=lab.new_id(), payload_text=f'{{"n":{n}}}') for n in range(3)]
    later = replace(
        first, id=lab.new_id(), available_at=first.available_at + timedelta(hours=1), status=Status.SCHEDULED
    )
    urgent = replace(first, id=lab.new_id(), reprioritised_to=90)  # not as a new one is
    jobs, lines = [first, *alike, other, *alike[:2], later, alike[2], first], [1, 1, 1, 2, 3, 1, 1, 1, 1, 1]
    for chosen in (jobs, [*jobs, urgent, first]):
        places = [*lines, 1, 1][: len(chosen)]
        expected = [row_of_new(job, line, Micros()) for job, line in zip(chosen, places, strict=True)]
        assert Insertion(chosen, places, 0)._rows(range(len(chosen))) == expected


async def test_a_lone_job_that_is_stored_already_is_left_to_the_ordinary_verb(lab: Lab) -> None:
    job = await lab.put()
    assert await begin(lab, replace(job, seq=0)) is None
    assert await lab.insert(replace(job, seq=0)) == [Inserted(job)]


async def test_a_lone_job_of_lines_that_were_collected_is_left_to_the_ordinary_verb(lab: Lab) -> None:
    await lab.put()
    assert isinstance(lab.engine, SqliteEngine)
    await lab.engine._writer.run(lambda connection: connection.execute("UPDATE books SET collected = collected + 1"))
    job = lab.job()
    assert await begin(lab, job) is None
    assert isinstance((await lab.insert(job))[0], Inserted)


@pytest.mark.parametrize(
    "options",
    [
        {"queue": "unknown"},
        {"tags": ("t",)},
        {"dedup": "k"},
        {"request_key": "r", "request_hash": "h"},
        {"customer": "c"},
        {"schedule": "s"},
        {"root": UUID(int=1)},
        {"rerun_of": UUID(int=1)},
        {"batch": UUID(int=1)},
        {"parent": UUID(int=1)},
        {"after": (UUID(int=1),), "waits": 1},
    ],
)
async def test_what_is_more_than_one_row_is_not_begun(lab: Lab, options: dict[str, Any]) -> None:
    await lab.put()
    job = lab.job(**options)
    assert await begin(lab, job) is False
    assert (await lab.engine.records.ledger()).accepted == 1


async def test_a_lone_job_that_no_engine_keeps_or_a_closed_session_is_not_begun(lab: Lab) -> None:
    job = await lab.put("task\u00e4")
    assert await begin(lab, replace(lab.job("task\u00e4"), payload_text="\0")) is False
    await lab.engine.close()
    assert await begin(lab, lab.job("task\u00e4")) is False
    await lab.engine.open()
    assert await lab.get(job) == job


async def test_what_goes_wrong_with_a_lone_job_is_told(lab: Lab, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await lab.put()
    monkeypatch.setattr(thread, "LOCK_TIMEOUT_SECONDS", 0.2)
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    answer = await begin(lab, lab.job())
    assert isinstance(answer, Unavailable)
    assert answer.outcome == "refused"
    other.close()
    os.rename(file, file.with_name("elsewhere.db"))
    assert isinstance(await begin(lab, lab.job()), StoreLost)
    os.rename(file.with_name("elsewhere.db"), file)
    assert isinstance(await begin(lab, lab.job()), Inserted)
