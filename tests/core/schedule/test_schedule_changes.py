"""What becomes of schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.core.job import Spec
from headrace.core.schedule.rules import Continuous, Cron, Every
from headrace.core.schedule.schedule import (
    ScheduleDoc,
    check_removable,
    fire,
    new_schedule,
    paused,
    replaced,
    resumed,
    retired,
    revised,
    trigger,
)
from headrace.errors import ConfigError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
SPEC = Spec(task="report", created_at=NOW)
OLD = replace(new_schedule("daily", Cron("0 2 * * *"), SPEC, "{}", NOW), last_fire=NOW, last_job=UUID(int=1))


def new(payload: str = "{}", rule: Cron | Every | None = None, at: datetime = LATER) -> ScheduleDoc:
    return new_schedule("daily", rule or Cron("0 2 * * *"), SPEC, payload, at)


def test_the_same_rule_goes_on_where_it_was() -> None:
    made = revised(OLD, new('{"n":1}'))
    assert (made.payload_text, made.cursor, made.generation, made.last_job) == ('{"n":1}', NOW, 1, UUID(int=1))


def test_another_rule_begins_anew_and_makes_nothing_good() -> None:
    made = revised(replace(OLD, waiting=NOW, paused=True), new(rule=Every(minutes=5)))
    assert (made.cursor, made.generation, made.created_at) == (LATER, 2, NOW)
    assert (made.waiting, made.skipped, made.paused) == (None, 1, True), "a pause goes on"


def test_a_cursor_never_moves_back() -> None:
    assert revised(replace(OLD, cursor=LATER), new(rule=Every(minutes=5), at=NOW)).cursor == LATER
    assert resumed(replace(OLD, cursor=LATER, paused=True), NOW).cursor == LATER
    assert retired(replace(OLD, cursor=LATER), NOW).cursor == LATER


def test_a_pause_costs_what_would_have_fired() -> None:
    resting = paused(replace(OLD, waiting=NOW))
    assert resting.next_fire is None
    again = resumed(resting, LATER)
    assert (again.paused, again.cursor, again.waiting, again.skipped) == (False, LATER, None, 1)
    assert resumed(again, LATER + timedelta(hours=1)) == again, "nothing to resume"


def test_one_that_came_back_is_another_generation() -> None:
    gone = retired(OLD, LATER)
    assert not gone.active
    back = revised(gone, new())
    assert (back.retired, back.generation) == (False, 2)


def test_what_code_defines_is_changed_and_removed_in_the_code() -> None:
    code = replace(OLD, source="code")
    with pytest.raises(ConfigError, match="defined in code"):
        replaced(code, new())
    with pytest.raises(ConfigError, match="pause it"):
        check_removable(code)
    assert replaced(retired(code, NOW), new()).source == "dynamic"
    check_removable(retired(code, NOW))
    check_removable(OLD)


def test_a_fire_always_makes_the_same_job() -> None:
    one, two = fire(OLD, LATER, NOW), fire(OLD, LATER, LATER)
    assert one.id == two.id
    assert (one.spec.schedule, one.spec.fire_at) == ("daily", LATER)
    assert fire(replace(OLD, generation=2), LATER, NOW).id != one.id


def test_a_trigger_is_no_fire_and_continuous_ones_have_neither() -> None:
    job = trigger(OLD, UUID(int=7), NOW)
    assert (job.id, job.spec.schedule, job.spec.fire_at) == (UUID(int=7), "daily", None)
    steady = replace(OLD, rule=Continuous())
    with pytest.raises(ConfigError, match="runs by itself"):
        trigger(steady, UUID(int=7), NOW)
    with pytest.raises(ConfigError, match="no fires"):
        fire(steady, LATER, NOW)
