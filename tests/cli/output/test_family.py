"""Families of jobs on the command line: filters, options, and what ``show`` draws."""

from __future__ import annotations

import io
from uuid import UUID

from msgspec.structs import replace
from rich.console import Console

from headrace.cli.output.family import MAX_MEMBERS, MAX_SHOWN_JOBS, MAX_SIBLINGS, Relatives, family_view
from headrace.core.job import Job
from headrace.core.status import Status
from tests.cli.kin import Kin, kin
from tests.cli.records import at, job

__all__ = ["kin"]

NOBODY = "01990000-0000-7000-8000-0000deadbeef"


# Filters


def test_jobs_are_found_by_their_family(kin: Kin) -> None:
    root, other = kin.submit("tree"), kin.submit("leaf", "n=1")
    kin.work()
    children = kin.json("jobs", "--parent", root[-8:])["items"]
    assert [(one["task"], one["parent"], one["root"]) for one in children] == [("branch", root, root)] * 2
    family = kin.json("jobs", "--root", root, "--all")["items"]
    assert len(family) == 2 + 2 * 12
    assert other not in {one["id"] for one in family}
    assert len(kin.json("jobs", "--root", root, "--task", "leaf", "--status", "completed")["items"]) == 24
    assert kin.json("jobs", "--parent", other)["items"] == []


def test_a_job_with_a_parent_is_no_root(kin: Kin) -> None:
    root = kin.submit("tree")
    kin.work()
    child = kin.json("jobs", "--parent", root)["items"][0]["id"]
    said = kin("cancel", "--root", child, "--yes", code=2).stderr
    assert f"--root {root}" in said
    assert f"--parent {child}" in said


def test_one_may_act_on_children_and_on_batches(kin: Kin) -> None:
    batch = kin.batch(1, -1, -2)
    kin.work()
    assert {one["payload"]["n"] for one in kin.json("jobs", "--batch", batch, "--status", "failed")["items"]} == {
        -1,
        -2,
    }
    verdicts = kin.json("retry", "--batch", batch, "--yes")
    assert [verdict["verdict"] for verdict in verdicts] == ["done", "done"]
    assert "this would cancel 2 jobs" in kin("cancel", "--batch", batch, code=2).stderr
    # A job of the batch stands for it, also with its short id.
    member = verdicts[0]["id"]
    assert len(kin.json("jobs", "--batch", member[-8:])["items"]) == 3
    assert kin.json("jobs", "--batch", NOBODY)["items"] == []


# Waiting


def test_a_job_is_submitted_to_wait_for_others(kin: Kin) -> None:
    first, second = kin.submit("leaf", "n=3"), kin.submit("leaf", "n=4")
    last = kin.json("submit", "total", "--after", first[-8:], "--after", second)
    assert (last["status"], last["after"]) == ("waiting", [first, second])
    assert "for 2 jobs" in kin("jobs").stdout
    text = kin("show", last["id"]).stdout
    for word in ("2 jobs, to succeed; else it is cancelled", first, second, "queued"):
        assert word in text
    kin.work()
    assert kin.json("show", last["id"])["result"] == 7
    assert "claimable" not in kin("show", last["id"]).stdout


def test_what_becomes_of_it_is_chosen(kin: Kin) -> None:
    bad = kin.submit("leaf", "n=-1")
    ids = [
        kin.submit("leaf", "n=1", "--after", bad, *words)
        for words in ([], ["--on-parent-failure", "fail"], ["--after-when", "ended"])
    ]
    kin.work()
    ends = [kin.json("show", id) for id in ids]
    assert [(end["status"], end["reason"]) for end in ends] == [
        ("cancelled", "parent"),
        ("failed", "parent"),
        ("completed", None),
    ]


def test_what_cannot_be_waited_for_is_refused(kin: Kin) -> None:
    kin("submit", "leaf", "n=1", "--after", NOBODY, code=3)
    kin("submit", "leaf", "n=1", "--after", "ffffffff", code=3)
    assert "--after, which is missing" in kin("submit", "leaf", "n=1", "--after-when", "ended", code=2).stderr
    assert kin.json("jobs")["items"] == []


# The picture


def test_show_draws_the_family_from_any_of_its_members(kin: Kin) -> None:
    root = kin.submit("tree")
    kin.work()
    leaf = kin.json("jobs", "--task", "leaf", "--limit", "1")["items"][0]
    text = kin("show", leaf["id"]).stdout
    for word in ("family", f"parent     {leaf['parent']}", f"root       {root}", "├── branch", "… 4 more: 4 completed"):
        assert word in text
    assert [line for line in text.splitlines() if line.endswith("←") and leaf["id"] in line]
    assert "family" not in kin("show", kin.submit("leaf", "n=1")).stdout
    trace = kin.within(_traced(kin))
    assert "trace      traceparent: 00-1-2-03" in kin("show", trace).stdout


async def _traced(kin: Kin) -> str:
    return str((await kin.module.leaf.options(trace={"traceparent": "00-1-2-03"}).submit(1)).id)


def drawn(one: Job, around: Relatives) -> list[str]:
    out = Console(file=io.StringIO(), width=200, color_system=None, markup=False)
    for view in family_view(one, around, at(5), out):
        out.print(view)
    assert isinstance(out.file, io.StringIO)
    return [line.rstrip() for line in out.file.getvalue().splitlines() if line.strip()]


def member(number: int, parent: int, status: Status = Status.COMPLETED) -> Job:
    one = job(id=UUID(int=number), status=status)
    return replace(one, spec=replace(one.spec, parent=UUID(int=parent), root=UUID(int=1)))


def test_a_big_family_is_drawn_in_short_and_counted() -> None:
    top = job(id=UUID(int=1))
    children = [member(10 + n, 1) for n in range(100)]
    last = member(5000, 109, Status.RUNNING)
    lines = drawn(
        last, Relatives((), top, [*children, *(member(1000 + n, 10 + n) for n in range(99)), last], more=True)
    )
    assert len(lines) < MAX_SHOWN_JOBS + MAX_SIBLINGS + 10
    # The way to the job is always there, however many stand before it.
    assert any(str(last.id) in line and line.endswith("←") for line in lines)
    assert any(str(UUID(int=109)) in line for line in lines)
    assert f"… {100 - MAX_SIBLINGS - 1} more: {100 - MAX_SIBLINGS - 1} completed" in "\n".join(lines)
    assert f"the newest {MAX_MEMBERS:,}" in lines[-1]


def test_who_lost_their_parents_hang_from_the_root() -> None:
    lines = drawn(member(3, 2), Relatives((), None, [member(3, 2)]))
    assert lines[1] == f"{UUID(int=1)}, which is gone"
    assert lines[2].startswith("└── resize  completed")


def test_what_is_in_the_way_comes_first_among_those_waited_for() -> None:
    parents = [member(10 + n, 1) for n in range(50)]
    parents[30] = job(id=UUID(int=40), status=Status.FAILED)
    parents[40] = job(id=UUID(int=50), status=Status.RUNNING)
    waiting = job(status=Status.WAITING)
    waiting = replace(waiting, spec=replace(waiting.spec, after=tuple(UUID(int=10 + n) for n in range(51))))
    lines = drawn(waiting, Relatives([*parents, None]))
    assert "51 jobs, to succeed" in lines[0]
    assert str(UUID(int=50)) in lines[1]
    assert str(UUID(int=40)) in lines[2]
    assert lines[-2:] == [f"  … {50 - MAX_SIBLINGS} more: {50 - MAX_SIBLINGS} completed", "  1 job pruned"]
