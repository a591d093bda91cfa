"""When rules fire, on ordinary days and where the clocks turn; what is made good; ids of fires."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.defaults import SKIP_GRACE_SECONDS
from headrace.core.job import Spec
from headrace.core.lifecycle.retry import Retry
from headrace.core.schedule.fires import due_fires, fire_id, fires, latest_fires, next_fire, preview
from headrace.core.schedule.rules import CatchUp, Cron, Every, Rule, same_rule
from headrace.core.schedule.schedule import ScheduleDoc, new_schedule
from headrace.errors import ConfigError

ANCHOR = datetime(2026, 1, 1, 12, 0, 7, tzinfo=UTC)
YEAR = timedelta(days=365)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# Rules


def test_cron_fires_on_its_minutes() -> None:
    assert preview(Cron("*/20 6 * * *"), utc("2026-01-01 06:10"), ANCHOR, 4) == [
        utc("2026-01-01 06:20"),
        utc("2026-01-01 06:40"),
        utc("2026-01-02 06:00"),
        utc("2026-01-02 06:20"),
    ]


def test_a_fire_is_after_the_moment_asked_from() -> None:
    rule = Cron("0 2 * * *")
    assert next_fire(rule, utc("2026-01-01 02:00"), ANCHOR) == utc("2026-01-02 02:00")
    assert next_fire(rule, utc("2026-01-01 02:00") - timedelta(microseconds=1), ANCHOR) == utc("2026-01-01 02:00")


def test_six_fields_begin_with_seconds() -> None:
    assert preview(Cron("*/30 * * * * *"), utc("2026-01-01 00:00:10"), ANCHOR, 3) == [
        utc("2026-01-01 00:00:30"),
        utc("2026-01-01 00:01:00"),
        utc("2026-01-01 00:01:30"),
    ]


@pytest.mark.parametrize(
    ("nickname", "first"),
    [
        ("@yearly", "2027-01-01 00:00"),
        ("@annually", "2027-01-01 00:00"),
        ("@monthly", "2026-06-01 00:00"),
        ("@weekly", "2026-05-17 00:00"),
        ("@daily", "2026-05-14 00:00"),
        ("@midnight", "2026-05-14 00:00"),
        ("@Hourly", "2026-05-13 10:00"),
    ],
)
def test_nicknames(nickname: str, first: str) -> None:
    assert next_fire(Cron(nickname), utc("2026-05-13 09:30"), ANCHOR) == utc(first)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Cron("* * * *"), "'* * * *'"),
        (lambda: Cron("61 * * * *"), "'61 * * * *'"),
        (lambda: Cron("0 0 30 2 *"), "'0 0 30 2 *'"),
        (lambda: Cron("@reboot"), "'@reboot'"),
        (lambda: Cron(""), "''"),
        (lambda: Cron(None), "None"),  # type: ignore[arg-type]
        (lambda: Cron("@daily", tz="Nowhere/Land"), "'Nowhere/Land'"),
        (lambda: Cron("@daily", tz="America"), "'America'"),
        (lambda: Cron("@daily", tz=""), "''"),
        (lambda: Cron("@daily", catch_up="twice"), "'twice'"),  # type: ignore[arg-type]
        (lambda: Every(), "longer than 0"),
        (lambda: Every(seconds=0.000001), "at least 0.1 s, not 1e-06 s: what should run all the time is a cont"),
        (lambda: Every(seconds=0.099), "at least 0.1 s, not 0.099 s"),
        (lambda: Every(minutes=-5), "-5"),
        (lambda: Every(seconds=float("nan")), "nan"),
        (lambda: Every(days=1e12), "Every"),
        (lambda: Every(seconds=1, catch_up="no"), "'no'"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_used_is_named(make: Callable[[], Rule], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        make()


def test_every_counts_from_its_anchor() -> None:
    rule = Every(minutes=5)
    assert next_fire(rule, ANCHOR - YEAR, ANCHOR) == ANCHOR + timedelta(minutes=5)
    assert next_fire(rule, ANCHOR, ANCHOR) == ANCHOR + timedelta(minutes=5)
    assert preview(rule, ANCHOR + timedelta(minutes=12), ANCHOR, 2) == [
        ANCHOR + timedelta(minutes=15),
        ANCHOR + timedelta(minutes=20),
    ]


def test_rules_that_fire_alike_are_the_same() -> None:
    assert same_rule(Every(minutes=1), Every(seconds=60, catch_up="all"))
    assert same_rule(Cron("@daily"), Cron("0  0 * * *"))
    assert not same_rule(Cron("@daily"), Cron("@daily", tz="Europe/Berlin"))
    assert not same_rule(Cron("@daily"), Every(days=1))


def test_rules_read_well() -> None:
    assert str(Cron("0 2 * * *", tz="Europe/Berlin")) == "0 2 * * * Europe/Berlin"
    assert str(Every(hours=1, minutes=30)) == "every 1 h 30 min"


# Where the clocks turn

TURNS = [
    # New York, 2026-03-08: 02:00 EST → 03:00 EDT; 2026-11-01: 02:00 EDT → 01:00 EST
    ("America/New_York", "0 2 * * *", "2026-03-07", ["07 02:00 -05", "08 03:00 -04", "09 02:00 -04"]),
    ("America/New_York", "30 1 * * *", "2026-03-07", ["07 01:30 -05", "08 01:30 -05", "09 01:30 -04"]),
    ("America/New_York", "30 2 * * *", "2026-03-07", ["07 02:30 -05", "08 03:00 -04", "09 02:30 -04"]),
    ("America/New_York", "0 2 * * *", "2026-10-31", ["31 02:00 -04", "01 02:00 -05", "02 02:00 -05"]),
    ("America/New_York", "30 1 * * *", "2026-10-31", ["31 01:30 -04", "01 01:30 -04", "02 01:30 -05"]),
    # London, 2026-03-29: 01:00 GMT → 02:00 BST; 2026-10-25: 02:00 BST → 01:00 GMT
    ("Europe/London", "0 2 * * *", "2026-03-28", ["28 02:00 +00", "29 02:00 +01", "30 02:00 +01"]),
    ("Europe/London", "30 1 * * *", "2026-03-28", ["28 01:30 +00", "29 02:00 +01", "30 01:30 +01"]),
    ("Europe/London", "0 2 * * *", "2026-10-24", ["24 02:00 +01", "25 02:00 +00", "26 02:00 +00"]),
    ("Europe/London", "30 1 * * *", "2026-10-24", ["24 01:30 +01", "25 01:30 +01", "26 01:30 +00"]),
    # Lord Howe turns by half an hour. 2026-10-04: 02:00 +10:30 → 02:30 +11; 2026-04-05: 02:00 +11 → 01:30 +10:30
    ("Australia/Lord_Howe", "0 2 * * *", "2026-10-03", ["03 02:00 +10:30", "04 02:30 +11", "05 02:00 +11"]),
    ("Australia/Lord_Howe", "30 1 * * *", "2026-10-03", ["03 01:30 +10:30", "04 01:30 +10:30", "05 01:30 +11"]),
    ("Australia/Lord_Howe", "0 2 * * *", "2026-04-04", ["04 02:00 +11", "05 02:00 +10:30", "06 02:00 +10:30"]),
    ("Australia/Lord_Howe", "30 1 * * *", "2026-04-04", ["04 01:30 +11", "05 01:30 +11", "06 01:30 +10:30"]),
    # Named times that share a gap fire once between them.
    ("America/New_York", "0,15,30 2 * * *", "2026-03-08", ["08 03:00 -04", "09 02:00 -04", "09 02:15 -04"]),
    ("America/New_York", "0 2,3 * * *", "2026-03-08", ["08 03:00 -04", "09 02:00 -04", "09 03:00 -04"]),
    # Six fields keep the same rule.
    ("America/New_York", "0 30 1 * * *", "2026-11-01", ["01 01:30 -04", "02 01:30 -05", "03 01:30 -05"]),
    # A star goes by the time that passes.
    ("America/New_York", "0 * * * *", "2026-11-01", ["01 00:00 -04", "01 01:00 -04", "01 01:00 -05", "01 02:00 -05"]),
    ("America/New_York", "0 * * * *", "2026-03-08", ["08 00:00 -05", "08 01:00 -05", "08 03:00 -04", "08 04:00 -04"]),
    ("Australia/Lord_Howe", "*/30 5 * * *", "2026-10-04", ["04 05:00 +11", "04 05:30 +11", "05 05:00 +11"]),
    ("Australia/Lord_Howe", "*/30 5 * * *", "2026-04-05", ["05 05:00 +10:30", "05 05:30 +10:30", "06 05:00 +10:30"]),
    # Santiago leaps over midnight; Apia leapt over a whole day.
    ("America/Santiago", "0 0 * * *", "2024-09-08", ["08 01:00 -03", "09 00:00 -03"]),
    ("America/Santiago", "*/30 * 8 9 *", "2024-09-01", ["08 01:00 -03", "08 01:30 -03"]),
    ("Pacific/Apia", "0 12 * * *", "2011-12-29", ["29 12:00 -10", "31 00:00 +14", "31 12:00 +14"]),
]


def shown(at: datetime, tz: str) -> str:
    text = at.astimezone(ZoneInfo(tz)).strftime("%d %H:%M %z")
    return text[:-2] + (":" + text[-2:] if text[-2:] != "00" else "")


@pytest.mark.parametrize(("tz", "expr", "day", "expected"), TURNS)
def test_through_the_turns_of_the_clocks(tz: str, expr: str, day: str, expected: list[str]) -> None:
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(tz)) - timedelta(seconds=1)
    found = preview(Cron(expr, tz=tz), start, ANCHOR, len(expected))
    assert [shown(at, tz) for at in found] == expected


@pytest.mark.parametrize(("tz", "expr", "day", "expected"), TURNS)
def test_fires_do_not_depend_on_where_one_starts(tz: str, expr: str, day: str, expected: list[str]) -> None:
    rule = Cron(expr, tz=tz)
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(tz)).astimezone(UTC) - timedelta(hours=30)
    whole = [at for at in preview(rule, start, ANCHOR, 200) if at < start + timedelta(hours=80)]
    for minutes in range(0, 80 * 60, 7):
        moment = start + timedelta(minutes=minutes, seconds=13)
        assert next_fire(rule, moment, ANCHOR) == next(
            (at for at in whole if at > moment), next_fire(rule, whole[-1] if whole else start, ANCHOR)
        )


@given(
    expr=st.sampled_from(["0 2 * * *", "30 1 * * 0", "*/7 * * * *", "0 */5 * * *", "15,45 0-3 * * *", "0 0 1 * *"]),
    tz=st.sampled_from(["UTC", "America/New_York", "Europe/London", "Australia/Lord_Howe", "Africa/Casablanca"]),
    after=st.datetimes(datetime(2015, 1, 1), datetime(2036, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_fires_only_move_forward(expr: str, tz: str, after: datetime) -> None:
    found = preview(Cron(expr, tz=tz), after, ANCHOR, 20)
    assert len(found) == 20
    assert all(one < other for one, other in pairwise([after, *found]))
    assert all(at.utcoffset() == timedelta(0) for at in found)


# Missed fires

NOON = utc("2026-03-10 12:00")


def every(catch_up: CatchUp, minutes: float = 10) -> Every:
    return Every(minutes=minutes, catch_up=catch_up)


@pytest.mark.parametrize(
    ("catch_up", "expected"), [("once", [50]), ("skip", []), ("all", [10, 20, 30, 40, 50])], ids=str
)
def test_what_was_missed_is_made_good_as_asked(catch_up: CatchUp, expected: list[int]) -> None:
    now = NOON + timedelta(minutes=55)
    found = due_fires(every(catch_up), NOON, now, NOON, YEAR)
    assert found == [NOON + timedelta(minutes=minutes) for minutes in expected]


@pytest.mark.parametrize("catch_up", ["once", "skip", "all"])
def test_a_fire_in_time_is_made_whatever_the_catch_up(catch_up: CatchUp) -> None:
    fire = NOON + timedelta(minutes=10)
    for late in (0.0, 1.0, SKIP_GRACE_SECONDS - 1):
        assert due_fires(every(catch_up), NOON, fire + timedelta(seconds=late), NOON, YEAR) == [fire]


@pytest.mark.parametrize("catch_up", ["once", "skip", "all"])
def test_nothing_is_due_before_the_cursor(catch_up: CatchUp) -> None:
    assert due_fires(every(catch_up), NOON, NOON, NOON, YEAR) == []
    assert due_fires(every(catch_up), NOON, NOON - timedelta(days=3), NOON, YEAR) == []
    assert due_fires(every(catch_up), NOON, NOON + timedelta(minutes=9), NOON, YEAR) == []


def test_all_keeps_the_newest_up_to_the_cap() -> None:
    now = NOON + timedelta(minutes=10_000)
    found = due_fires(every("all"), NOON, now, NOON, YEAR, cap=3)
    assert found == [now - timedelta(minutes=20), now - timedelta(minutes=10), now]


@pytest.mark.parametrize("catch_up", ["once", "all"])
def test_nothing_is_made_good_beyond_the_horizon(catch_up: CatchUp) -> None:
    rule, now = Cron("0 0 1 * *", catch_up=catch_up), utc("2026-03-10 12:00")
    assert due_fires(rule, now - YEAR, now, ANCHOR, timedelta(days=7)) == []
    assert due_fires(rule, now - YEAR, now, ANCHOR, timedelta(days=10)) == [utc("2026-03-01 00:00")]


def test_a_long_outage_of_a_busy_rule_is_cheap() -> None:
    rule = Cron("* * * * * *", tz="Europe/Berlin")
    found = latest_fires(rule, NOON - 20 * YEAR, NOON, ANCHOR, 100)
    assert found == [NOON - timedelta(seconds=99 - n) for n in range(100)]


@pytest.mark.parametrize("rule", [Every(seconds=0.1, end=NOON), Cron("* * * * * *", end=NOON)], ids=str)
def test_a_long_time_since_the_last_fire_of_a_busy_rule_is_cheap(rule: Every | Cron) -> None:
    step = timedelta(seconds=0.1 if isinstance(rule, Every) else 1)
    found = latest_fires(rule, NOON - 20 * YEAR, NOON + 20 * YEAR, NOON - 20 * YEAR, 3)
    assert found == [NOON - 2 * step, NOON - step, NOON]
    assert due_fires(rule, NOON - 20 * YEAR, NOON + 20 * YEAR, NOON - 20 * YEAR, 50 * YEAR) == [NOON]


def test_the_newest_fires_of_a_steady_rule_begin_no_earlier_than_its_start() -> None:
    rule = Every(seconds=0.1, start=NOON)
    for cap, until in ((1, NOON + YEAR), (1, NOON), (3, NOON + 3 * rule.period), (3, NOON + rule.period)):
        first = max(NOON, until - (cap - 1) * rule.period)
        count = (until - first) // rule.period + 1
        assert latest_fires(rule, NOON - YEAR, until, ANCHOR, cap) == [first + n * rule.period for n in range(count)]
    assert latest_fires(rule, NOON, NOON + YEAR, ANCHOR, 0) == []
    assert latest_fires(Every(days=36_500), NOON - YEAR, NOON, ANCHOR, 1000) == []


@given(
    rule=st.sampled_from(
        [
            Cron("*/7 * * * *", tz="Europe/London"),
            Cron("0 3 * * *"),
            Every(minutes=13),
            Every(minutes=13, start=datetime(2026, 3, 28, 0, 0, 1, tzinfo=UTC)),
            Every(minutes=7, end=datetime(2026, 3, 30, tzinfo=UTC)),
        ]
    ),
    hours=st.integers(0, 24 * 9),
    cap=st.integers(1, 12),
)
def test_the_newest_fires_are_the_end_of_all(rule: Rule, hours: int, cap: int) -> None:
    until = utc("2026-03-31 00:00")
    after = until - timedelta(hours=hours)
    everything = []
    for at in fires(rule, after, ANCHOR):
        if at > until:
            break
        everything.append(at)
    assert latest_fires(rule, after, until, ANCHOR, cap) == everything[-cap:]


# Ids and documents


def test_the_id_of_a_fire_is_made_of_what_the_fire_is() -> None:
    id = fire_id("nightly", 1, NOON)
    assert id == fire_id("nightly", 1, NOON.astimezone(ZoneInfo("Asia/Tokyo")))
    others = {fire_id("nightly", 2, NOON), fire_id("daily", 1, NOON), fire_id("nightly", 1, NOON + timedelta(0, 0, 1))}
    assert len({id, *others}) == 4


def test_the_id_of_a_fire_is_a_uuid7_of_its_time() -> None:
    id = fire_id("nightly", 1, NOON)
    assert (id.version, id.variant) == (7, "specified in RFC 4122")
    assert id.int >> 80 == int(NOON.timestamp() * 1000)
    assert fire_id("nightly", 1, NOON + timedelta(seconds=1)) > id


def test_the_id_of_a_fire_never_changes() -> None:
    # Jobs in stores out there are named by it: a new version that derives another makes every fire twice.
    assert str(fire_id("nightly", 3, NOON)) == "019cd79e-4600-7461-a14e-378efa2776a7"


def doc(rule: Rule) -> ScheduleDoc:
    spec = Spec(task="report", created_at=NOON, retry=Retry(5, backoff=(1, 2)), tags=("a",), metadata={"x": 1})
    return new_schedule("nightly", rule, spec, '{"year":2026}', NOON)


@pytest.mark.parametrize("rule", [Cron("0 2 * * *", tz="Europe/Berlin", catch_up="all"), Every(minutes=5)], ids=str)
def test_a_schedule_survives_storage(rule: Rule) -> None:
    stored = doc(rule)
    assert ScheduleDoc.from_text(stored.to_text()) == stored
    assert stored.task == "report"


def test_a_stored_rule_is_checked_when_read() -> None:
    text = doc(Cron("0 2 * * *")).to_text().replace("0 2 * * *", "0 2 * *")
    with pytest.raises(msgspec.ValidationError, match="cron expression"):
        ScheduleDoc.from_text(text)


def test_a_resting_schedule_has_no_next_fire() -> None:
    stored = doc(Every(minutes=5))
    assert stored.next_fire == NOON + timedelta(minutes=5)
    assert msgspec.structs.replace(stored, paused=True).next_fire is None
    assert msgspec.structs.replace(stored, retired=True).next_fire is None


def test_a_schedule_needs_a_name_and_a_rule() -> None:
    spec = Spec(task="report", created_at=NOON)
    with pytest.raises(ConfigError, match="name"):
        new_schedule("", Every(minutes=1), spec, "{}", NOON)
    with pytest.raises(ConfigError, match="a Cron, an Every or a Continuous"):
        new_schedule("x", "0 2 * * *", spec, "{}", NOON)  # type: ignore[arg-type]
