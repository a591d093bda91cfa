"""Dealing: as claims do where nothing is limited, and never beyond a limit where something is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.core.defaults import Rules
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.claim import ClaimRequest, order, pick
from headrace.core.limits.rate import Rate, micros
from headrace.core.limits.selection import QueuedEntry, Usage, lapses, select_jobs, wanted
from headrace.core.limits.settings import Group, Limits, QueueRule, TaskRule, layered, limits_of
from headrace.core.status import Status
from tests.core.stand import submitted

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RULES = Rules()


def entries(count: int, first: int = 1, rank: int = -50) -> list[QueuedEntry]:
    return [QueuedEntry(seq, rank, micros(NOON + timedelta(seconds=seq))) for seq in range(first, first + count)]


def ask(n: int = 100, free: int = 100) -> ClaimRequest:
    return ClaimRequest(n=n, free=free, profiles=frozenset())


jobs = st.lists(
    st.tuples(
        st.sampled_from(["q1", "q2"]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 2),
        st.integers(0, 3),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=30,
)


@given(jobs=jobs, n=st.integers(0, 12), free=st.integers(0, 12), priority=st.integers(-1, 1))
def test_without_limits_it_is_what_a_claim_picks(
    jobs: list[tuple[str, str, int, int, int, bool]], n: int, free: int, priority: int
) -> None:
    limits = Limits({"q1": QueueRule(priority=priority)})
    made: list[Job] = []
    for seq, (queue, task, rank, arrived, losses, expired) in enumerate(jobs, 1):
        made.append(
            Job(
                id=UUID(int=seq),
                seq=seq,
                spec=Spec(task=task, created_at=NOON, queue=queue, priority=50 + rank),
                payload_text="{}",
                status=Status.QUEUED,
                available_at=NOON,
                arrived_at=NOON + timedelta(seconds=arrived),
                updated_at=NOON,
                unstarted_losses=losses,
                not_after=NOON if expired else None,
            )
        )
    made.sort(key=lambda job: order(job, limits.queue(job.queue).priority))
    wish = ClaimRequest(n=n, free=free, profiles=frozenset())
    expected = [job.seq for job in pick(made, wish, NOON, RULES)]
    lines: dict[Group, list[QueuedEntry]] = {}
    for job in made:
        entry = QueuedEntry(
            job.seq, -job.priority, micros(job.arrived_at), job.unstarted_losses, job.not_after is not None
        )
        lines.setdefault(Group(job.queue, job.task), []).append(entry)
    dealt = select_jobs(lines.items(), wish, NOON, RULES, limits, Usage())
    assert [entry.seq for entry in dealt.taken] == expected
    assert dealt.spent == {}


def test_it_tells_what_was_full_and_when_the_next_permit_is() -> None:
    limits = Limits(
        {"q": QueueRule(rates=("api",))}, {"a": TaskRule(max_concurrency=1)}, {"api": Rate(3, per=60, kind="fixed")}
    )
    lines = [(Group("q", "a"), entries(3)), (Group("q", "b"), entries(5, 10))]
    dealt = select_jobs(lines, ask(), NOON, RULES, limits, Usage({("task", "a"): 1}))
    assert [entry.seq for entry in dealt.taken] == [10, 11, 12]
    assert dealt.full == {("task", "a"): 1}
    assert dealt.next_permit == NOON + timedelta(seconds=60)
    assert set(dealt.spent) == {("rate", "api")}


def test_what_a_claim_fills_by_itself_is_not_told_as_full() -> None:
    limits = Limits({}, {"a": TaskRule(max_concurrency=1)}, {})
    dealt = select_jobs([(Group("q", "a"), entries(3))], ask(), NOON, RULES, limits, Usage())
    assert (len(dealt.taken), dealt.full) == (1, {})


def test_a_permit_is_spent_as_of_the_end_of_the_lead() -> None:
    limits = Limits({}, {"a": TaskRule(rates=("api",))}, {"api": Rate(3, per=60, kind="sliding")})
    wish, lines = ClaimRequest(n=100, free=100, profiles=frozenset(), lead=5.0), [(Group("q", "a"), entries(9))]
    dealt = select_jobs(lines, wish, NOON, RULES, limits, Usage())
    assert len(dealt.taken) == 3
    assert dealt.next_permit == lapses(dealt.spent["rate", "api"]) == NOON + timedelta(seconds=65)
    usage = Usage(spent=dealt.spent)
    assert not select_jobs(lines, wish, NOON + timedelta(seconds=64.9), RULES, limits, usage).taken
    assert len(select_jobs(lines, wish, NOON + timedelta(seconds=65), RULES, limits, usage).taken) == 3


def test_what_counts_for_longer_than_it_can_is_stored_as_it_is_judged() -> None:
    """The clock was set back by a day: a window later, and not a day later, there are permits again."""
    limits = Limits({}, {"a": TaskRule(rates=("api",))}, {"api": Rate(1, per=60, kind="sliding")})
    lines = [(Group("q", "a"), entries(9))]
    usage = Usage(spent={("rate", "api"): ((NOON + timedelta(days=1), 1),)})
    dealt = select_jobs(lines, ask(), NOON, RULES, limits, usage)
    assert dealt.taken == []
    assert dealt.next_permit == lapses(dealt.spent["rate", "api"]) == NOON + timedelta(seconds=60)


def test_who_needs_a_permit_is_said_by_queue_task_and_key() -> None:
    limits = Limits(
        {"slow": QueueRule(rates=("api",))},
        {"a": TaskRule(rates=("own",)), "b": TaskRule(rates=("gone",), max_concurrency=1)},
        {"api": Rate(1, per=1), "own": Rate(1, per=1, keyed=True)},
    )
    places = [("slow", "c", None), ("q", "a", None), ("q", "a", "k"), ("q", "b", "k"), ("q", "c", None)]
    jobs = [
        replace(submitted(task=task, queue=queue, concurrency_key=key), id=UUID(int=number))
        for number, (queue, task, key) in enumerate(places)
    ]
    assert limits.spending(jobs) == {jobs[0].id, jobs[2].id}
    assert Limits().spending(jobs) == frozenset()


def test_what_was_used_lapses() -> None:
    assert lapses(((NOON, 3), (NOON + timedelta(seconds=5), 1))) == NOON + timedelta(seconds=5)


def test_a_keyed_rate_is_counted_by_task_and_key() -> None:
    limits = Limits(
        tasks={"a": TaskRule(rates=("api", "own", "gone"))},
        rates={"api": Rate(1, per=1), "own": Rate(1, per=1, keyed=True)},
    )
    assert set(limits.paced(Group("q", "a", "k"))) == {("rate", "api"), ("rate", "own", "a", "k")}
    assert set(limits.paced(Group("q", "a"))) == {("rate", "api")}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30)), max_size=8), st.integers(1, 40))
def test_keys_take_turns(lines: list[tuple[str, int]], n: int) -> None:
    """Of keys that all arrived before, none is given two more than another that still has jobs."""
    first, given_out = 1, list[tuple[Group, list[QueuedEntry]]]()
    sizes: dict[str, int] = {}
    for key, count in lines:
        if key not in sizes:
            given_out.append((Group("q", "t", key), entries(count, first)))
            sizes[key] = count
            first += count
    keys = {entry.seq: group.key for group, one in given_out for entry in one}
    now = NOON + timedelta(hours=1)
    taken = [keys[entry.seq] for entry in select_jobs(given_out, ask(n), now, RULES, Limits(), Usage()).taken]
    for key, count in sizes.items():
        if taken.count(key) < count:
            assert all(taken.count(key) + 1 >= taken.count(other) for other in sizes)


def test_it_ends_in_front_of_what_was_not_read() -> None:
    lines = [
        (Group("q", "a"), [*entries(2), QueuedEntry(2, -50, micros(NOON), unread=True)]),
        (Group("q", "b"), entries(9, 3)),
    ]
    assert not select_jobs(lines, ask(2), NOON, RULES, Limits(), Usage()).cut
    dealt = select_jobs(lines, ask(3), NOON, RULES, Limits(), Usage())
    assert [entry.seq for entry in dealt.taken] == [1, 2]
    assert dealt.cut


@pytest.mark.parametrize("turned", [False, True])
def test_a_job_that_has_left_a_line_which_still_knows_it_is_at_the_place_where_it_is_now(turned: bool) -> None:
    lines = [
        (Group("old", "a", "k"), [QueuedEntry(7, -50, micros(NOON), unread=True)]),
        (Group("new", "a", "k"), [QueuedEntry(7, -50, micros(NOON))]),
    ]
    dealt = select_jobs(lines[::-1] if turned else lines, ask(2), NOON, RULES, Limits(), Usage())
    assert dealt.cut, "whoever deals reads more of the old line, and learns that the job has left it"


def test_what_was_not_read_and_could_not_be_given_is_passed_over() -> None:
    limits = Limits(tasks={"a": TaskRule(max_concurrency=2)})
    lines = [
        (Group("q", "a"), [*entries(2), QueuedEntry(2, -50, micros(NOON), unread=True)]),
        (Group("q", "b"), entries(9, 3)),
    ]
    dealt = select_jobs(lines, ask(4), NOON, RULES, limits, Usage())
    assert [entry.seq for entry in dealt.taken] == [1, 2, 3, 4]
    assert not dealt.cut


def test_settings_are_read_in_layers() -> None:
    assert layered('{"code":{"a":1,"b":2},"b":3,"c":null}') == {"a": 1, "b": 3}
    limits = limits_of(
        [
            ("queue:mail", '{"code":{"max_concurrency":5,"rates":["api"]},"paused":true}'),
            ("limit:send", '{"max_per_key":2}'),
            ("rate:api", '{"limit":5,"per":60.0,"kind":"bucket","keyed":true}'),
            ("task:send", '{"name":"send"}'),
        ]
    )
    assert limits.queue("mail") == QueueRule(0, True, 5, ("api",))
    assert limits.task("send") == TaskRule(max_per_key=2)
    assert limits.rates == {"api": Rate(5, per=60, kind="bucket", keyed=True)}
    assert limits.bounded("mail", "other")
    assert limits.bounded("other", "send")
    assert not limits.bounded("other", "other")


@pytest.mark.parametrize("free", [0, 1, 5])
def test_a_limited_job_never_waits_in_a_buffer(free: int) -> None:
    limits = Limits(tasks={"a": TaskRule(max_concurrency=9)})
    lines = [(Group("q", "a"), entries(9)), (Group("q", "b"), entries(9, 100))]
    taken = [entry.seq for entry in select_jobs(lines, ask(12, free), NOON, RULES, limits, Usage()).taken]
    assert taken == [*range(1, 1 + free), *range(100, min(109, 100 + 12 - free))]


def test_what_very_many_keys_are_counted_by_is_found_within_the_time_of_a_test() -> None:
    """It once took a moment for each pair of keys, not for each key: claims took minutes."""
    limits = Limits(tasks={"a": TaskRule(rates=("own",))}, rates={"own": Rate(1, per=1, keyed=True)})
    assert len(limits.paces(Group("q", "a", f"customer:{number}") for number in range(150_000))) == 150_000


@given(
    queue=st.sampled_from([None, 1, 3]),
    task=st.sampled_from([None, 1, 3]),
    n=st.integers(0, 4),
    free=st.integers(0, 4),
)
def test_no_more_are_given_of_a_line_than_are_wanted_of_it(
    queue: int | None, task: int | None, n: int, free: int
) -> None:
    limits = Limits({"q": QueueRule(max_concurrency=queue)}, {"a": TaskRule(max_concurrency=task)}, {})
    group, asked = Group("q", "a"), ask(n, free)
    assert len(select_jobs([(group, entries(9))], asked, NOON, RULES, limits, Usage()).taken) <= wanted(
        group, asked, limits
    )
    assert wanted(group, asked, limits) == (n if queue is task is None else min(n, free))
