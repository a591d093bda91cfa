"""Rules as settings have them; and what becomes of those that cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.core.defaults import Rules
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.limits.rate import Rate
from headrace.core.limits.selection import QueuedEntry, Usage, select_jobs, wanted
from headrace.core.limits.settings import Group, Limits, QueueRule, TaskRule, limits_of, told_unreadable

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ALL = [Group(queue, task) for queue in ("mail", "post") for task in ("send", "sort")]
ASK = ClaimRequest(n=100, free=100, profiles=frozenset())


def given(limits: Limits, key: str | None = None) -> set[tuple[str, str]]:
    """The queues and tasks of which a worker is given anything; one job of each waits."""
    groups = [Group(group.queue, group.task, key) for group in ALL]
    lines = [(group, [QueuedEntry(seq, 0, 0)]) for seq, group in enumerate(groups, 1)]
    dealt = select_jobs(lines, ASK, NOON, Rules(), limits, Usage())
    return {(groups[entry.seq - 1].queue, groups[entry.seq - 1].task) for entry in dealt.taken}


@pytest.mark.parametrize("key", [None, "anna"])
@pytest.mark.parametrize(
    ("settings", "closed"),
    [
        ({"queue:mail": '{"max_concurrency":"5"}'}, {("mail", "send"), ("mail", "sort")}),
        ({"queue:mail": '{"code":{"rates":"api"},"paused":false}'}, {("mail", "send"), ("mail", "sort")}),
        ({"limit:send": '{"max_per_key":[1]}'}, {("mail", "send"), ("post", "send")}),
        ({"limit:send": '{"code":[1],"max_per_key":1}'}, {("mail", "send"), ("post", "send")}),
        ({"limit:send": "{"}, {("mail", "send"), ("post", "send")}),
        ({"rate:api": '{"limit":1}'}, set()),  # nobody keeps to it
        ({"rate:api": '{"limit":1}', "limit:send": '{"rates":["api"]}'}, {("mail", "send"), ("post", "send")}),
        ({"queue:post": '{"code":{"rates":["b","api"]}}', "rate:api": "7"}, {("post", "send"), ("post", "sort")}),
        # A number that no rate can have is no better than a word.
        (
            {"queue:post": '{"rates":["api"]}', "rate:api": '{"limit":0,"per":1,"kind":"bucket","keyed":false}'},
            {("post", "send"), ("post", "sort")},
        ),
        ({"queue:mail": "7", "limit:sort": "7"}, {("mail", "send"), ("mail", "sort"), ("post", "sort")}),
        ({"queue:mail": '{"colour":"red"}', "schedule:x": "7", "task:send": "{"}, set()),  # none of it is a matter here
    ],
)
def test_what_cannot_be_read_closes_what_it_names_and_nothing_else(
    settings: dict[str, str], closed: set[tuple[str, str]], key: str | None
) -> None:
    limits = limits_of(settings.items())
    every = {(group.queue, group.task) for group in ALL}
    assert given(limits, key) == every - closed
    for group in ALL:
        shut = (group.queue, group.task) in closed
        assert (limits.closed(group.queue, group.task), bool(limits.in_the_way(group))) == (shut, shut)
        assert (wanted(group, ASK, limits) == 0) == shut
        assert limits.bounded(group.queue, group.task) or not shut


def test_what_can_be_read_beside_it_stays_as_it_is() -> None:
    settings = {
        "queue:mail": '{"priority":3,"max_concurrency":5,"rates":["api","calm"]}',
        "queue:post": '{"priority":2,"max_concurrency":4,"rates":["calm"]}',
        "limit:send": "null",
        "rate:api": "{}",
        "rate:calm": '{"limit":1,"per":60.0,"kind":"fixed","keyed":false}',
    }
    limits = limits_of(settings.items())
    assert limits.queues == {
        "mail": QueueRule(3, max_concurrency=0, rates=("api", "calm")),
        "post": QueueRule(2, max_concurrency=4, rates=("calm",)),
    }
    assert limits.tasks == {"send": TaskRule(max_concurrency=0)}
    assert limits.rates == {"calm": Rate(1, per=60)}
    assert set(limits.unreadable) == {"limit:send", "rate:api"}
    assert limits.in_the_way(Group("mail", "send")) == ["limit:send", "rate:api"]
    assert limits.undefined() == {}  # defined it is, but by somebody we do not understand


@pytest.mark.parametrize(
    ("key", "what", "remedy"),
    [
        ("queue:mail", "no job of the queue 'mail'", "headrace queues forget mail"),
        ("limit:a:b", "no job of the task 'a:b'", "headrace limits forget a:b"),
        ("rate:api", "no job that keeps to the rate 'api'", "headrace rates forget api"),
    ],
)
def test_what_is_told_names_the_setting_what_follows_and_the_remedy(key: str, what: str, remedy: str) -> None:
    limits = limits_of([(key, "7")])
    said, advice = told_unreadable(key, limits.unreadable[key])
    assert said.startswith(f"the setting {key!r} is none that this version of headrace can read (Expected `object`")
    assert what in said
    assert advice.endswith(remedy)
