"""Hints as PostgreSQL carries them: they fit, they are spread, and nothing that was to be told is forgotten."""

from __future__ import annotations

import random
from uuid import UUID

import msgspec
import pytest

from headrace.engine.bus import Hint, Topic
from headrace.engines.postgres.bus.notify import GAP_SECONDS, NAME_GROUPS, Channels, Notice, Throttle, split

IDS = tuple(str(UUID(int=at)) for at in range(5000))


def names(hints: list[Hint]) -> set[str]:
    return {name for hint in hints for name in hint.names}


# Channels and payloads


@pytest.mark.parametrize("schema", ["headrace", "s" * 37, "s" * 38, "ü" * 24, "s" * 63])
def test_names_of_channels_fit_and_differ(schema: str) -> None:
    channels = Channels(schema)
    all = [channels.calls, channels.private("f" * 16), *(channels.of(topic) for topic in Topic)]
    assert max(len(channel.encode()) for channel in all) <= 63
    assert len(set(all)) == len(all)
    assert channels.topics == {channels.of(topic): topic for topic in Topic}


def test_long_schemas_that_begin_alike_have_channels_of_their_own() -> None:
    assert Channels("s" * 62 + "a").calls != Channels("s" * 62 + "b").calls


def test_a_hint_is_split_into_payloads_the_server_takes() -> None:
    pieces = Channels("headrace").notifications(Hint(Topic.ENDED, IDS), "f" * 16)
    assert {channel for channel, _ in pieces} == {Channels("headrace").of(Topic.ENDED)}
    assert max(len(payload.encode()) for _, payload in pieces) < 8000
    notices = [msgspec.json.decode(payload, type=Notice) for _, payload in pieces]
    assert tuple(name for notice in notices for name in notice.names) == IDS
    assert len(pieces) < 30


def test_a_hint_without_names_is_one_payload() -> None:
    assert split(Hint(Topic.READY)) == [()]


def test_too_many_queues_to_name_are_everybody() -> None:
    queues = tuple(f"queue-{at}" for at in range(300))
    assert split(Hint(Topic.READY, queues)) == [queues]
    assert split(Hint(Topic.READY, (*queues, "one more"))) == [()]


def test_a_queue_that_cannot_be_named_is_everybody_and_any_other_name_is_dropped() -> None:
    assert split(Hint(Topic.READY, ("a", "x" * 8000))) == [()]
    assert split(Hint(Topic.ENDED, ("a", "x" * 8000))) == [("a",)]
    assert split(Hint(Topic.ENDED, ("x" * 8000,))) == []
    assert split(Hint(Topic.ENDED, ("a", "\ud800"))) == [("a",)]


# How often


def test_the_first_hint_is_told_at_once_and_the_next_when_the_gap_is_over() -> None:
    throttle = Throttle(burst=0)
    throttle.add(Topic.READY, ["a"])
    assert throttle.take(1.0) == [Hint(Topic.READY, ("a",))]
    assert throttle.due() is None
    throttle.add(Topic.READY, ["a"])
    throttle.add(Topic.READY, ["a"])
    assert throttle.take(1.0 + GAP_SECONDS / 2) == []
    assert throttle.due() == 1.0 + GAP_SECONDS
    assert throttle.take(1.0 + GAP_SECONDS) == [Hint(Topic.READY, ("a",))]
    assert throttle.take(9.0) == []


def test_fifty_jobs_a_second_at_random_moments_are_told_of_at_once() -> None:
    throttle, chance, now = Throttle(), random.Random(50), 1.0
    for _ in range(10_000):
        now += chance.expovariate(50)
        assert throttle.pass_by(Topic.READY, ["a"], now) == ["a"]


def test_topics_do_not_hold_up_one_another() -> None:
    throttle = Throttle(burst=0)
    for topic in Topic:
        throttle.add(topic, ["a"])
        assert throttle.take(1.0) == [Hint(topic, ("a",))]


def test_a_busy_name_holds_up_few_others() -> None:
    throttle = Throttle(burst=0)
    throttle.add(Topic.ENDED, IDS[:1])
    throttle.take(1.0)
    throttle.add(Topic.ENDED, IDS[1:1001])
    at_once = names(throttle.take(1.0))
    assert len(at_once) > 1000 * (NAME_GROUPS - 2) / NAME_GROUPS
    assert at_once | names(throttle.take(1.0 + GAP_SECONDS)) == set(IDS[1:1001])


def test_everybody_includes_those_who_were_named() -> None:
    throttle = Throttle(burst=0)
    throttle.add(Topic.READY, ["a"])
    throttle.add(Topic.READY, [])
    assert throttle.take(1.0) == [Hint(Topic.READY)]


def test_everything_can_be_taken_whatever_was_told_lately() -> None:
    throttle = Throttle(burst=0)
    throttle.add(Topic.READY, ["a"])
    throttle.take(1.0)
    throttle.add(Topic.READY, ["a"])
    assert throttle.take(1.0, everything=True) == [Hint(Topic.READY, ("a",))]


def test_what_others_tell_counts_as_told() -> None:
    throttle = Throttle(burst=0)
    assert throttle.pass_by(Topic.READY, ["a"], 1.0) == ["a"]
    assert throttle.pass_by(Topic.READY, ["a"], 1.0) == []
    throttle.add(Topic.READY, ["a"])
    assert throttle.take(1.0) == []
    assert throttle.take(1.0 + GAP_SECONDS) == [Hint(Topic.READY, ("a",))]


def test_names_that_cannot_be_told_do_not_pile_up() -> None:
    throttle = Throttle(burst=0)
    for at in range(100):
        throttle.add(Topic.ENDED, (f"{at}-{id}" for id in IDS))
    assert len(names(throttle.take(1.0))) <= 1000 * NAME_GROUPS


def test_what_trickles_in_is_told_at_once_and_a_flood_at_its_pace() -> None:
    throttle, told = Throttle(burst=4), 0
    for number in range(1000):  # twenty in each gap
        told += len(throttle.pass_by(Topic.READY, ["a"], 10.0 + number * GAP_SECONDS / 20))
    assert 50 <= told <= 55
    trickle = [throttle.pass_by(Topic.READY, ["a"], 20.0 + number * GAP_SECONDS * 0.75) for number in range(8)]
    assert all(trickle)


def test_a_hint_that_waits_goes_along_half_a_gap_ahead_and_the_rate_stays() -> None:
    throttle = Throttle(burst=0)
    assert throttle.pass_by(Topic.READY, ["a"], 1.0) == ["a"]
    throttle.add(Topic.READY, ["a"])
    assert throttle.pass_by(Topic.READY, ["a"], 1.0 + GAP_SECONDS * 0.4) == []
    assert throttle.pass_by(Topic.READY, ["a"], 1.0 + GAP_SECONDS * 0.6) == ["a"]
    throttle.passed_by(Topic.READY, ["a"])
    assert throttle.due() is None
    throttle.add(Topic.READY, ["a"])
    assert throttle.due() == 1.0 + 2 * GAP_SECONDS


def test_a_hint_goes_ahead_of_no_other_that_waits_longer_for_it() -> None:
    throttle = Throttle(burst=0)
    throttle.pass_by(Topic.READY, IDS, 1.0)  # all groups
    throttle.add(Topic.READY, IDS[: NAME_GROUPS + 1])
    alike = next(group for group in _groups(IDS[: NAME_GROUPS + 1]) if len(group) > 1)
    assert throttle.pass_by(Topic.READY, alike[:1], 1.0 + GAP_SECONDS * 0.9) == []


def _groups(names: tuple[str, ...]) -> list[list[str]]:
    """Names by group: those that hold up one another."""
    groups = list[list[str]]()
    for name in names:
        for group in groups:
            throttle = Throttle(burst=0)
            throttle.pass_by(Topic.READY, group[:1], 1.0)
            if not throttle.pass_by(Topic.READY, [name], 1.0):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def test_what_waits_stays_until_the_statement_that_carries_it_is_committed() -> None:
    throttle = Throttle(burst=0)
    throttle.pass_by(Topic.READY, ["a"], 1.0)
    throttle.add(Topic.READY, ["a"])
    throttle.passed_by(Topic.READY, ["a"])  # of a statement that began before: what waits came after it
    assert throttle.due() == 1.0 + GAP_SECONDS
    assert throttle.pass_by(Topic.READY, ["a"], 1.0 + GAP_SECONDS) == ["a"]  # and that fails: it is told by itself
    assert throttle.take(1.0 + 2 * GAP_SECONDS) == [Hint(Topic.READY, ("a",))]


def test_what_comes_while_a_statement_is_on_its_way_is_told_after_it() -> None:
    throttle = Throttle(burst=0)
    throttle.pass_by(Topic.READY, ["a"], 1.0)
    throttle.add(Topic.READY, ["a"])
    assert throttle.pass_by(Topic.READY, ["a"], 1.0 + GAP_SECONDS) == ["a"]
    throttle.add(Topic.READY, ["a"])  # perhaps committed after the statement, and not heard of with it
    throttle.passed_by(Topic.READY, ["a"])
    assert throttle.take(1.0 + 2 * GAP_SECONDS) == [Hint(Topic.READY, ("a",))]
