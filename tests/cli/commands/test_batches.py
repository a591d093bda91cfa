"""``batch``: how a batch stands, and what one may do about it."""

from __future__ import annotations

import io
import json
from socket import gethostname
from typing import Any
from uuid import UUID

import pytest
from rich.console import Console

from headrace.cli.output.batches import BAR_CHARACTERS, bar, batch_view, sentence
from headrace.core.batch import Batch, BatchCallback
from headrace.core.change import BatchTally
from headrace.core.job import Spec
from headrace.core.status import Status
from tests.cli.kin import Kin, kin
from tests.cli.records import ID, T0, at, job

__all__ = ["kin"]

NOBODY = "01990000-0000-7000-8000-0000deadbeef"


def test_a_batch_is_shown_from_its_birth_to_its_end(kin: Kin) -> None:
    batch = kin.batch(1, 2, -1, on_complete=kin.module.report.draft(), on_failure=kin.module.total.draft())
    text = kin("batch", batch).stdout
    for word in (batch, "live", "0 %", "3 in all, 3 live", "report  when it has ended", "total  if not all"):
        assert word in text
    kin.work()
    text = kin("batch", batch).stdout
    for word in ("ended", "100 %", "2 completed", "1 failed", "on complete", "on failure"):
        assert word in text
    record = kin.json("batch", batch)
    assert record["id"] == batch
    assert record["tally"] == {"total": 3, "completed": 2, "failed": 1, "cancelled": 0}
    assert (record["sealed"], record["abandoned"], record["settled"]) == (True, False, True)
    assert record["ended_at"] is not None
    assert record["on_complete"]["id"] in text
    assert kin.json("show", record["on_complete"]["id"])["metadata"] == {"batch": batch}


def test_a_batch_is_found_by_one_of_its_jobs(kin: Kin) -> None:
    batch = kin.batch(1, 2)
    member = kin.json("jobs", "--batch", batch)["items"][0]["id"]
    assert kin.json("batch", member[-8:])["id"] == kin.json("batch", member)["id"] == batch


def test_batches_are_listed_newest_first(kin: Kin) -> None:
    kin.submit("leaf", "n=1")
    assert "no batches yet" in kin("batches").stderr
    first, second = kin.batch(1, -1), kin.batch(2)
    kin.work()
    third = kin.batch(3)
    text = kin("batches").stdout
    assert [word for word in text.split() if word in (first, second, third)] == [third, second, first]
    assert all(word in text for word in ("live", "ended", "completed", "failed"))
    page = kin("batches", "--limit", "2")
    cursor = page.stderr.strip().removeprefix("more: --cursor ")
    assert first not in page.stdout
    rest = kin.json("batches", "--cursor", cursor)
    assert rest["cursor"] is None
    assert [(one["id"], one["tally"]["failed"]) for one in rest["items"]] == [(first, 1)]
    assert kin.json("batches", "--limit", "2")["cursor"] == cursor
    assert "cursor" in kin("batches", "--cursor", "x", code=2).stderr


def test_a_batch_that_is_not_there(kin: Kin) -> None:
    alone = kin.submit("leaf", "n=1")
    assert f"no batch {NOBODY}" in kin("batch", NOBODY, code=3).stderr
    kin("batch", "ffffffff", code=3)
    assert "in no batch" in kin("batch", alone, code=3).stderr
    lost = kin("batch", "0000dead", code=3).stderr
    assert "headrace batches" in lost
    kin("batch", NOBODY, "--timeout", "1s", code=2)


@pytest.mark.parametrize(("numbers", "code"), [((1, 2), 0), ((1, -1), 1), ((), 0)])
def test_waiting_ends_with_the_batch(kin: Kin, numbers: tuple[int, ...], code: int) -> None:
    batch = kin.batch(*numbers)
    kin.work()
    assert f"{len(numbers)} of {len(numbers)} ended" in kin("batch", batch, "--wait", code=code).stdout
    lines = [json.loads(line) for line in kin("batch", batch, "--wait", "--json", code=code).stdout.splitlines()]
    assert lines[-1]["tally"]["total"] == len(numbers)


def test_waiting_in_vain(kin: Kin) -> None:
    batch = kin.batch(1)
    assert "it goes on" in kin("batch", batch, "--wait", "--timeout", "50ms", code=1).stderr
    assert kin.json("batch", batch)["tally"]["completed"] == 0


def test_a_batch_is_cancelled_with_a_yes(kin: Kin) -> None:
    batch = kin.batch(1, 2, 3)
    assert "this would cancel 3 jobs: say --yes" in kin("batch", batch, "--cancel", code=2).stderr
    assert kin.json("batch", batch)["tally"]["cancelled"] == 0
    result = kin("batch", batch, "--cancel", "--yes", "--wait", "--json", code=1)
    assert "3 jobs cancelled" in result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["tally"]["cancelled"] == 3
    assert "nothing to cancel" in kin("batch", batch, "--cancel").stderr
    [member, *_] = kin.json("jobs", "--batch", batch)["items"]
    assert kin.json("show", member["id"])["events"][0]["by"].endswith(f" on {gethostname()}")


def test_an_open_batch_is_cancelled_also_when_all_that_is_there_has_ended(kin: Kin) -> None:
    async def make() -> str:
        app = kin.module.app
        now = app.host.clock.now()
        record = Batch(id=app.host.new_id(), created_at=now, touched_at=now)
        await app.session.engine.jobs.insert([], now, record)
        return str(record.id)

    batch = kin.within(make())
    assert "open" in kin("batch", batch).stdout
    result = kin("batch", batch, "--cancel", "--yes", "--wait", "--json", code=1)
    assert "0 jobs cancelled" in result.stderr
    record = json.loads(result.stdout.splitlines()[-1])
    assert record["sealed"]
    assert record["cancelled_by"].endswith(f" on {gethostname()}")
    text = kin("batch", batch).stdout
    for word in ("ended, cancelled", "it takes no more jobs"):
        assert word in text
    assert "ended, cancelled" in kin("batches").stdout
    assert "nothing to cancel" in kin("batch", batch, "--cancel").stderr


# The picture


def batch(**changes: Any) -> Batch:
    fields: dict[str, Any] = {"id": ID, "created_at": T0, "touched_at": at(60), "sealed": True}
    return Batch(**(fields | changes))


def shown(record: Batch, **follow: Any) -> str:
    out = Console(file=io.StringIO(), width=200, color_system=None, markup=False)
    out.print(batch_view(record, {one.id: one for one in follow.values()}, at(90)))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


@pytest.mark.parametrize(
    ("tally", "left"),
    [
        (BatchTally(100, 50), 20),
        (BatchTally(100_000, 99_998, 1), 1),
        (BatchTally(100_000, 1), BAR_CHARACTERS - 1),
        (BatchTally(3, 1, 1, 1), 0),
        (BatchTally(7), BAR_CHARACTERS),
    ],
)
def test_the_bar_has_a_cell_for_everything_there_is(tally: BatchTally, left: int) -> None:
    text = bar(batch(tally=tally))
    cells = text.plain[:BAR_CHARACTERS]
    assert cells.count("┄") == left
    assert cells.count("━") == BAR_CHARACTERS - left
    ends = [count for count in (tally.completed, tally.failed, tally.cancelled) if count]
    assert len({span.style for span in text.spans if "┄" not in text.plain[span.start : span.end]}) == len(ends)


def test_an_open_batch_is_never_full() -> None:
    text = bar(batch(sealed=False, tally=BatchTally(1000, 1000))).plain
    assert "┄" in text
    assert "100 %" not in text
    assert "no jobs" in bar(batch()).plain


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sealed": False, "tally": BatchTally(10)}, ["open", "jobs are being added, the last 30 s ago"]),
        (
            {"abandoned": True, "tally": BatchTally(2, 2), "ended_at": at(61)},
            ["ended, abandoned", "some may be missing"],
        ),
        ({"tally": BatchTally(2, 1), "ended_at": at(61)}, ["live", "a job of it was retried since"]),
        ({"tally": BatchTally(2000, 1, 0, 1)}, ["2,000 in all, 1 completed, 1 cancelled, 1,998 live"]),
    ],
)
def test_what_is_said_of_a_batch(changes: dict[str, Any], words: list[str]) -> None:
    text = shown(batch(**changes))
    for word in words:
        assert word in text


def test_what_follows_is_told_with_its_job() -> None:
    call = BatchCallback(id=UUID(int=7), spec=Spec(task="report", created_at=T0), payload_text="{}")
    other = BatchCallback(id=UUID(int=8), spec=Spec(task="alert", created_at=T0), payload_text="{}")
    record = batch(tally=BatchTally(1, 1), ended_at=at(61), settled=True, on_complete=call, on_failure=other)
    text = shown(record, report=job(id=UUID(int=7), status=Status.RUNNING))
    assert f"report  running  {UUID(int=7)}" in text
    assert "alert  was not needed, or is pruned" in text


def test_the_sentence_names_what_there_is() -> None:
    assert sentence(batch(tally=BatchTally(1234, 1000, 2))) == "1,002 of 1,234 ended: 1,000 completed, 2 failed · live"
    assert sentence(batch(tally=BatchTally(1))) == "0 of 1 ended · live"
