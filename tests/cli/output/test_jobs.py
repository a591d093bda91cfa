"""Jobs for people to look at."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from headrace.cli.output.jobs import job_table, job_view, progress_bar
from headrace.core.attempt import ErrorInfo, History, Progress
from headrace.core.status import Status
from tests.cli.records import ID, at, dead_letter, job


def plain(width: int = 200, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None, markup=False)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_program_sees_whole_ids_and_a_person_their_ends() -> None:
    for terminal, id in ((False, str(ID)), (True, "deadbeef")):
        out = plain(terminal=terminal)
        out.print(job_table([job()], at(5), out))
        assert id in printed(out)
        assert (str(ID) in printed(out)) is not terminal


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, '{"image":"[bold]cat.png"}'),
        ({"status": Status.RUNNING, "progress": Progress(40, "row 4")}, "40 % row 4"),
        ({"status": Status.COMPLETED, "result_text": '{"w":1}'}, '→ {"w":1}'),
        ({"status": Status.SCHEDULED, "available_at": at(65)}, "due in 1 m"),
        ({"status": Status.RUNNING, "cancel_requested_at": at(1)}, "running (cancelling)"),
    ],
)
def test_the_table_says_the_one_thing_worth_saying(changes: dict[str, object], said: str) -> None:
    out = plain()
    out.print(job_table([job(**changes)], at(5), out))
    assert said in printed(out)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("width", [40, 80, 160])
def test_a_job_is_shown_whole_at_every_width(terminal: bool, width: int) -> None:
    out = plain(width, terminal)
    out.print(job_view(*dead_letter(), at(30), out))
    text = printed(out)
    for word in ("resize", "payload", "Traceback", "timeline", "attempt 2", "discard"):
        assert word in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, None),
        ({"heartbeat": 60.0}, "1 m"),
        ({"remote_heartbeat": 60.0}, "1 m, of workers behind a hub"),
    ],
)
def test_a_job_that_must_report_says_so(options: dict[str, float], said: str | None) -> None:
    out, one = plain(), job()
    out.print(job_view(replace(one, spec=replace(one.spec, **options)), History(), at(30), out))
    found = [line.split(None, 1)[1].strip() for line in printed(out).splitlines() if line.startswith("heartbeat")]
    assert found == ([] if said is None else [said])


def test_what_users_wrote_is_never_taken_for_markup() -> None:
    out = plain()
    out.print(job_view(*dead_letter(), at(30), out))
    assert "[bold]cat.png" in printed(out)
    assert "boom [red]" in printed(out)


def test_a_fresh_job_can_be_shown() -> None:
    out = plain()
    out.print(job_view(job(), History(), at(0), out))
    assert "claimable" in printed(out)


@pytest.mark.parametrize(("percent", "full"), [(0, 0), (50, 5), (100, 10), (250, 10), (-5, 0)])
def test_a_bar_never_leaves_its_frame(percent: float, full: int) -> None:
    bar = progress_bar(percent, 10)
    assert bar.plain.count("━") == 10
    assert sum(span.end - span.start for span in bar.spans if span.style == "yellow" and span.start < 10) == full


@pytest.mark.parametrize("terminal", [False, True])
def test_what_an_error_says_makes_no_terminal_do_anything(terminal: bool) -> None:
    wicked = ErrorInfo("Boom", "gone\x1b[2J\x07", traceback="Traceback\x1b[2J")
    failed = job(status=Status.FAILED, error=wicked, finished_at=at(3))
    out = plain(terminal=terminal)
    out.print(job_table([failed], at(5), out))
    out.print(job_view(failed, History(), at(5), out))
    assert "\x1b[2J" not in printed(out)
    assert "\x07" not in printed(out)
    assert "gone\\x1b[2J" in printed(out)
