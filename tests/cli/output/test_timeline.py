"""The picture of what happened to a job."""

from __future__ import annotations

from msgspec.structs import replace

from headrace.cli.output.timeline import Row, draw, extent, rows
from headrace.core.attempt import Event, History
from headrace.core.status import Outcome, Reason, Status, Verb
from tests.cli.records import WORKER, at, attempt, dead_letter, job


def picture(row: Row, start: float, end: float, width: int) -> str:
    return "".join(sign for sign, _ in draw(row, at(start), at(end), width))


def test_everything_that_happened_is_a_row_in_order() -> None:
    made = rows(*dead_letter(), at(30))
    assert [row.label for row in made] == ["submitted", "attempt 1", "attempt 2", "discard", "cancelled"]
    assert made[1].note == "failed · worker 0000beef · ValueError: boom [red]"
    assert made[2].note == "timed out (timeout) · worker 0000beef"
    assert made[2].took == "5.0 s"
    assert made[3].note == "by cli"
    assert extent(made) == (at(0), at(20))


def test_bars_are_to_scale() -> None:
    made = rows(*dead_letter(), at(30))
    assert picture(made[0], 0, 20, 20) == "◆" + " " * 19
    assert picture(made[1], 0, 20, 20) == "·███" + " " * 16
    assert picture(made[2], 0, 20, 20) == "   ··██████" + " " * 9
    assert picture(made[4], 0, 20, 20) == " " * 19 + "◆"


def test_a_run_too_short_for_a_cell_is_still_seen() -> None:
    history = History((attempt(1, 100, 100.001, Outcome.COMPLETED),))
    made = rows(job(status=Status.COMPLETED, finished_at=at(100.001)), history, at(200))
    assert "█" in picture(made[1], 0, 100.001, 20)


def test_a_running_attempt_grows_until_now() -> None:
    running = job(status=Status.RUNNING, attempt=1, worker=WORKER, assigned_at=at(2), started_at=at(4), epoch=1)
    last = rows(running, History(), at(10))[-1]
    assert (last.label, last.took, last.note) == ("attempt 1", "6.0 s", "running · worker 0000beef")
    assert picture(last, 0, 10, 10) == "··░░██████"


def test_a_job_taken_and_not_yet_started_shows_the_attempt_to_come() -> None:
    last = rows(job(status=Status.ACCEPTED, worker=WORKER, assigned_at=at(2)), History(), at(4))[-1]
    assert (last.label, last.took) == ("attempt 1", "")


def test_a_waiting_job_shows_when_it_is_due() -> None:
    later = rows(job(status=Status.SCHEDULED, available_at=at(60)), History(), at(10))[-1]
    assert (later.label, later.note) == ("scheduled", "due in 50.0 s")
    assert rows(job(), History(), at(10))[-1].note == "claimable"


def test_a_loss_without_a_start_and_folded_snoozes_are_told() -> None:
    lost = attempt(1, 1, 5, Outcome.LOST, started_at=None, cause="lease")
    snoozed = attempt(2, 6, 7, Outcome.SNOOZED, count=4)
    made = rows(job(), History((lost, snoozed)), at(10))
    assert (made[1].took, made[1].note) == ("not started", "lost (lease) · worker 0000beef")
    assert made[2].note == "snoozed ×4 · worker 0000beef"


def test_a_timeline_without_length_can_be_drawn() -> None:
    made = rows(job(), History(), at(0))
    assert picture(made[0], 0, 0, 5) == "◆    "


def test_rows_are_in_the_order_of_the_times_they_show() -> None:
    lost = attempt(1, 2, 60, Outcome.LOST, started_at=None, cause="start_by")
    ended = job(status=Status.CANCELLED, finished_at=at(60))
    made = rows(ended, History((lost,), (Event(Verb.CANCEL, at(30), "cli"),)), at(90))
    assert [row.label for row in made] == ["submitted", "attempt 1", "cancel", "cancelled"]
    assert [row.at for row in made] == [at(0), at(2), at(30), at(60)]
    moved = rows(job(), History((attempt(1, 1, 5, Outcome.FAILED),), (Event(Verb.CANCEL, at(8)),)), at(10))
    assert moved[-1].at == at(8), "what it does now began before, and is said last"


def test_what_is_done_to_an_ended_job_does_not_move_its_end() -> None:
    done = job(status=Status.COMPLETED, finished_at=at(5), updated_at=at(50))
    history = History((attempt(1, 1, 5, Outcome.COMPLETED),), (Event(Verb.RERUN, at(50), "cli"),))
    made = rows(done, history, at(90))
    assert [(row.label, row.at) for row in made[-2:]] == [("completed", at(5)), ("rerun", at(50))]
    put_away = replace(done, status=Status.CANCELLED, reason=Reason.DISCARDED)
    events = (Event(Verb.DISCARD, at(40), "cli"), Event(Verb.RERUN, at(50), "cli"))
    made = rows(put_away, History(history.attempts, events), at(90))
    assert [row.label for row in made] == ["submitted", "attempt 1", "discard", "cancelled", "rerun"]
    assert made[-2].at == at(40), "it was put away later than it ended"
