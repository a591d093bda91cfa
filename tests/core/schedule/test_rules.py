"""What a rule may be told, and what is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from headrace.core.lifecycle.retry import Retry
from headrace.core.schedule.rules import Continuous, Cron, Every, Rule, same_rule
from headrace.errors import ConfigError

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - refused for that


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Cron("@daily", overlap="never"), "overlap must be 'allow', 'skip' or 'wait', not 'never'"),  # type: ignore[arg-type]
        (lambda: Cron("@daily", cap=0), "cap must be a whole number from 1 to 1000, not 0"),
        (lambda: Every(minutes=5, cap=True), "cap must be a whole number from 1 to 1000, not True"),
        (lambda: Every(minutes=5, jitter=-1), "jitter must be finite, at most a century, and not negative, not -1"),
        (lambda: Every(minutes=5, jitter="1s"), "jitter must be seconds or a timedelta, not '1s'"),  # type: ignore[arg-type]
        (lambda: Every(minutes=5, jitter=301), "jitter (301 s) is longer than the time between two fires (300 s)"),
        (
            lambda: Cron("*/20 * * * *", jitter=1201),
            "jitter (1201 s) is longer than the time between two fires (1200 s)",
        ),
        # 56 minutes past is followed by the full hour, after four minutes.
        (lambda: Cron("*/7 * * * *", jitter=241), "jitter (241 s) is longer than the time between two fires (240 s)"),
        (lambda: Cron("@daily", start=NAIVE), "start must be an aware datetime"),
        (lambda: Cron("@daily", end="2026-01-01"), "end must be a datetime, not '2026-01-01'"),  # type: ignore[arg-type]
        (lambda: Every(days=1, start=NEW_YEAR, end=NEW_YEAR - timedelta(seconds=1)), "is before start"),
        (lambda: Continuous(0), "instances must be a whole number from 1 to 1000, not 0"),
        (lambda: Continuous(instances=1.5), "instances must be a whole number"),  # type: ignore[arg-type]
        (lambda: Continuous(cool_down=-1), "cool_down must be finite"),
    ],
)
def test_what_cannot_be_is_refused_by_name(make: Callable[[], Rule], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        make()


def test_jitter_may_fill_the_time_between_two_fires() -> None:
    assert Every(minutes=5, jitter=300).spread == timedelta(minutes=5)
    assert Every(minutes=5, jitter=timedelta(seconds=30)) == Every(minutes=5, jitter=30.0)
    assert Cron("*/7 * * * *", jitter=240).spread == timedelta(minutes=4)
    assert Cron("0 0 29 2 *", jitter=86400).spread == timedelta(days=1)  # too rare for a second one to be looked at


def test_moments_are_kept_in_utc() -> None:
    east = datetime(2026, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))
    rule = Cron("@daily", start=east)
    assert (rule.start, rule.start and rule.start.utcoffset()) == (NEW_YEAR, timedelta(0))


@pytest.mark.parametrize(
    "rule",
    [
        Cron("0 2 * * *", tz="Europe/Berlin", overlap="wait", jitter=60, start=NEW_YEAR, catch_up="all", cap=7),
        Every(minutes=5, overlap="skip", jitter=timedelta(seconds=30), end=NEW_YEAR),
        Continuous(instances=3, cool_down=timedelta(seconds=2)),
    ],
    ids=str,
)
def test_rules_survive_storage(rule: Rule) -> None:
    assert msgspec.json.decode(msgspec.json.encode(rule), type=Rule) == rule


def test_rules_of_an_earlier_version_are_read() -> None:
    text = b'{"kind":"cron","expr":"0 2 * * *","tz":"UTC","catch_up":"skip"}'
    assert msgspec.json.decode(text, type=Rule) == Cron("0 2 * * *", catch_up="skip")


def test_what_changes_the_moments_makes_another_rule_and_nothing_else_does() -> None:
    rule = Every(minutes=5)
    assert same_rule(rule, Every(minutes=5, jitter=10, overlap="wait", catch_up="all", cap=3))
    assert not same_rule(rule, Every(minutes=5, start=NEW_YEAR))
    assert not same_rule(rule, Every(minutes=5, end=NEW_YEAR))
    assert same_rule(Continuous(1), Continuous(3, cool_down=1))
    assert not same_rule(rule, Continuous(1))


def test_the_cool_down_is_the_delay_before_every_further_attempt() -> None:
    retry = Continuous(cool_down=7).retry
    assert isinstance(retry, Retry)
    assert {retry.delay(n, chance) for n in (0, 1, 50) for chance in (0.0, 0.9)} == {7.0}
