"""Scaling advice, on simulated days, and for what is there at one moment."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import pytest

from headrace.core.limits.rate import Rate
from headrace.core.limits.settings import Limits, QueueRule, TaskRule
from headrace.core.stats.rollup import Totals
from headrace.core.stats.scale import Demand, Runs, advise, arrival_rate, mixed_runs, most_at_once, runs_of

DAY, MINUTE = 86400.0, 60.0


class Simulated:
    """A queue whose slots are set as advised at every full minute: how long jobs waited, and what that took."""

    def __init__(self, arrivals: Sequence[float], takes: Callable[[], float], wait: float, until: float = DAY) -> None:
        self.waits: list[float] = []
        self.advised: list[int] = []
        self.work = self.provided = 0.0
        """Seconds of slots that were busy, and that were there."""
        self._queue, self._running = deque[float](), list[tuple[float, float]]()
        self._ended, self._totals, self._slots = deque[float](), Totals(), 0
        coming, tick, now = deque(arrivals), 0.0, 0.0
        while True:
            arrives = coming[0] if coming else math.inf
            ends = self._running[0][0] if self._running else math.inf
            last, now = now, min(arrives, ends, tick)
            if now >= until:
                break
            # A slot that is taken away in the middle of a run is there until the end of that run.
            self.provided += max(self._slots, len(self._running)) * (now - last)
            self.work += len(self._running) * (now - last)
            if now == ends:
                self._end()
            elif now == arrives:
                self._queue.append(coming.popleft())
            else:
                self._slots = self._advice(now, wait)
                self.advised.append(self._slots)
                tick += MINUTE
            while self._queue and len(self._running) < self._slots:
                self.waits.append(now - self._queue.popleft())
                seconds = takes()
                heapq.heappush(self._running, (now + seconds, seconds))
        self.late = sum(waited > wait for waited in self.waits) / len(self.waits)

    def _end(self) -> None:
        ended_at, seconds = heapq.heappop(self._running)
        self._ended.append(ended_at)
        self._totals.completed += 1
        self._totals.ran.add(seconds)

    def _advice(self, now: float, wait: float) -> int:
        while self._ended and self._ended[0] <= now - 15 * MINUTE:
            self._ended.popleft()
        demand = Demand(
            queued=len(self._queue),
            held=len(self._running),
            age=now - self._queue[0] if self._queue else 0.0,
            ended=Counter(int((now - at) // MINUTE) for at in self._ended),
            runs=runs_of(self._totals),
        )
        return advise(demand, self._slots, wait).slots_needed


def arriving(dice: random.Random, rate: Callable[[float], float], top: float, until: float = DAY) -> list[float]:
    """When jobs arrive that come by chance, at a rate that changes and is never more than the top."""
    found, at = list[float](), 0.0
    while (at := at + dice.expovariate(top)) < until:
        if dice.random() * top < rate(at):
            found.append(at)
    return found


def day(dice: random.Random, night: float, peak: float) -> list[float]:
    """A quiet night, and a peak after noon."""
    return arriving(dice, lambda at: night + peak * math.exp(-(((at - 13 * 3600) / 7200) ** 2) / 2), night + peak)


def varied(dice: random.Random, mean: float) -> float:
    """Most are short, few are long."""
    return dice.lognormvariate(math.log(mean) - 0.5, 1.0)


@pytest.mark.parametrize(
    ("takes", "mean", "wait", "night", "peak"),
    [
        pytest.param("chance", 10.0, 30.0, 0.3, 3.0, id="shorter than the wait"),
        pytest.param("chance", 60.0, 30.0, 0.1, 1.0, id="longer than the wait"),
        pytest.param("varied", 60.0, 60.0, 0.1, 1.0, id="as long, a few much longer"),
        pytest.param("same", 300.0, 60.0, 0.05, 0.3, id="much longer, all the same"),
    ],
)
def test_on_a_day_with_a_peak_jobs_begin_in_time_at_little_cost(
    takes: str, mean: float, wait: float, night: float, peak: float
) -> None:
    dice = random.Random(f"{takes} {mean}")
    made = {"chance": lambda: dice.expovariate(1 / mean), "varied": lambda: varied(dice, mean), "same": lambda: mean}
    ran = Simulated(day(dice, night, peak), made[takes], wait)
    assert ran.late < 0.05
    # Nobody can do the work with fewer slots than it keeps busy, not even in hindsight.
    assert ran.provided <= 1.3 * ran.work
    flaps = sum((b - a) * (c - b) < 0 and _far(a, b) and _far(b, c) for a, b, c in triples(ran.advised))
    assert flaps < len(ran.advised) / 25, "it goes up and down, and not to and fro"


def triples(of: Sequence[int]) -> Iterable[tuple[int, int, int]]:
    return zip(of, of[1:], of[2:], strict=False)


def _far(one: int, other: int) -> bool:
    return abs(one - other) > max(1, one / 10)


def test_from_nothing_to_a_peak_and_back() -> None:
    dice = random.Random(1)
    arrivals = arriving(dice, lambda at: 5.0 if 600 <= at < 2400 else 0.0, 5.0, 3600)
    ran = Simulated(arrivals, lambda: dice.expovariate(0.1), 30.0, 3600)
    assert ran.late < 0.05, "but for those of the minute in which nothing was there"
    assert ran.advised[:11] == [0] * 11
    steady = ran.advised[20:40]
    assert min(steady) >= 48
    assert max(steady) <= 60
    assert all(later <= earlier for earlier, later in pairwise(ran.advised[42:])), "down, and never up again"
    assert ran.advised[-1] == 0


@pytest.mark.parametrize("wait", [0.0, 30.0])
def test_nothing_to_do_needs_nothing_and_a_backlog_one_at_least(wait: float) -> None:
    assert advise(Demand(), 8, wait).slots_needed == 0
    for runs in (None, Runs(0.001), Runs(3600.0)):
        assert advise(Demand(queued=1, runs=runs), 0, wait).slots_needed == 1
        assert advise(Demand(held=1, runs=runs), 1, wait).slots_needed == 1
        assert advise(Demand(ended={14: 1}, runs=runs), 1, wait).slots_needed == 1, "the next may come any time"


def test_a_backlog_is_worked_off_in_the_wanted_time() -> None:
    assert advise(Demand(queued=3000, runs=Runs(1.0)), 0, 29.0).slots_needed == 100
    assert advise(Demand(queued=3000, runs=Runs(3600.0)), 0, 30.0).slots_needed == 2976, "a slot for each"
    late = advise(Demand(queued=3000, age=3600, runs=Runs(1.0)), 0, 29.0).slots_needed
    assert 100 < late < 400, "sooner, since it is late, but not at any price"


def test_until_a_run_has_ended_a_slot_is_for_two() -> None:
    advice = advise(Demand(queued=40), 0, 30.0)
    assert (advice.slots_needed, advice.service_rate, advice.expected_wait) == (20, None, None)


def test_headroom_is_a_smaller_part_of_a_greater_load() -> None:
    shares = list[float]()
    for rate in (1, 10, 100, 1000, 4000, 100_000):
        ended = dict.fromkeys(range(15), rate * 60)
        shares.append(advise(Demand(ended=ended, runs=Runs(2.0)), 0, 1.0).slots_needed / (rate * 2))
    assert shares[:-1] == sorted(shares[:-1], reverse=True)
    assert shares[0] > 1.5
    assert 1 < shares[-1] < 1.01


def test_few_wait_longer_than_wanted_by_the_formula_of_erlang() -> None:
    """An M/M/c queue: with the advised slots few are late, with one less more than allowed."""
    ended = dict.fromkeys(range(15), 600)  # 10 a second
    needed = advise(Demand(ended=ended, runs=Runs(2.0)), 0, 0.5).slots_needed

    def late(slots: int) -> float:
        terms = [20.0**n / math.factorial(n) for n in range(slots)]
        waits = 20.0**slots / math.factorial(slots) * slots / (slots - 20)
        return waits / (sum(terms) + waits) * math.exp(-(slots - 20) / 2.0 * 0.5)

    assert late(needed) <= 0.04 < late(needed - 1)


def test_the_rate_is_that_of_arrivals_and_not_of_work() -> None:
    saturated = Demand(queued=600, age=60.0, ended=dict.fromkeys(range(15), 60))
    assert arrival_rate(saturated) == pytest.approx((600 + 540) / 600)
    assert arrival_rate(Demand(queued=6000, age=1200.0, ended={0: 1})) == pytest.approx(5.0, abs=0.01)
    assert arrival_rate(Demand(ended=dict.fromkeys(range(15), 60))) == pytest.approx(1.0)


def test_a_rise_counts_once_it_is_no_chance() -> None:
    assert advise(Demand(ended={0: 600}, runs=Runs(10.0)), 0, 30.0).slots_needed > 90
    assert advise(Demand(ended={0: 4}, runs=Runs(10.0)), 0, 30.0).slots_needed == 1


def test_what_was_submitted_at_once_says_nothing_about_the_next_minutes() -> None:
    assert advise(Demand(queued=3000, age=1.0, runs=Runs(3600.0)), 0, 30.0).slots_needed <= 3010
    assert advise(Demand(queued=1, runs=Runs(3600.0)), 0, 30.0).slots_needed == 1
    assert advise(Demand(ended={1: 3000}, runs=Runs(3600.0)), 3000, 30.0).slots_needed == 1, "they came an hour ago"


def test_it_falls_slowly() -> None:
    advised = [
        advise(Demand(ended=dict.fromkeys(range(ago, 15), 60), runs=Runs(10.0)), 0, 30.0).slots_needed
        for ago in range(16)
    ]
    assert advised[:6] == [advised[0]] * 6
    assert advised == sorted(advised, reverse=True)
    assert advised[-1] == 0


def test_where_much_ends_the_time_that_was_counted_is_what_counts() -> None:
    assert arrival_rate(Demand(ended={0: 10_000}, seconds=20.0)) == pytest.approx(500.0)
    assert advise(Demand(ended={0: 10_000}, seconds=20.0, runs=Runs(0.1)), 0, 30.0).slots_needed in range(50, 60)


@pytest.mark.parametrize(
    ("queued", "held", "slots", "expected"),
    [(0, 0, 0, None), (0, 3, 10, 0.0), (6, 3, 10, 0.0), (9, 1, 10, 1.0), (100, 10, 10, 101.0)],
)
def test_the_expected_wait_is_that_of_the_slots_there(
    queued: int, held: int, slots: int, expected: float | None
) -> None:
    found = advise(Demand(queued=queued, held=held, runs=Runs(10.0)), slots, 30.0).expected_wait
    assert found is None if expected is None else found == pytest.approx(expected, abs=0.01)


def test_at_full_slots_the_average_is_expected() -> None:
    busy = Demand(held=9, ended=dict.fromkeys(range(15), 54), runs=Runs(10.0))
    found = advise(busy, 10, 30.0).expected_wait
    assert found is not None
    assert found == pytest.approx(6.7, rel=0.02), "M/M/10 at a load of 9"
    assert advise(busy, 100_000, 30.0).expected_wait == 0


def test_limits_and_pauses_are_kept_to() -> None:
    demand = Demand(queued=1000, held=4, runs=Runs(10.0))
    assert advise(demand, 4, 30.0, most=20).slots_needed == 20
    assert advise(demand, 4, 30.0, most=0).expected_wait is None
    paused = advise(demand, 4, 30.0, paused=True)
    assert (paused.slots_needed, paused.expected_wait) == (4, None)


def test_how_many_may_run_at_once() -> None:
    limits = Limits(
        queues={"q": QueueRule(max_concurrency=50), "r": QueueRule(rates=("ten", "unknown"))},
        tasks={"a": TaskRule(max_concurrency=3), "b": TaskRule(max_concurrency=4), "c": TaskRule(rates=("keyed",))},
        rates={"ten": Rate(10, per=60), "keyed": Rate(1, per=60, keyed=True)},
    )
    assert most_at_once(limits, "q", ["a"], None) == 3
    assert most_at_once(limits, "q", ["a", "b"], None) == 7
    assert most_at_once(limits, "q", ["a", "x"], None) == 50, "the other has no limit"
    assert most_at_once(limits, "z", ["x", "c"], 1.0) is None
    assert most_at_once(limits, "r", ["x"], 1.0) == 10
    assert most_at_once(limits, "r", ["x"], 150.0) == 30
    assert most_at_once(limits, "r", ["x"], None) is None


def test_run_times_come_from_what_workers_count() -> None:
    totals = Totals(completed=60, failed=40, retried=30)
    assert runs_of(totals) is None
    for _ in range(100):
        totals.ran.add(2.0)
    runs = runs_of(totals)
    assert runs is not None
    assert runs.seconds == 2.0
    assert runs.per_job == pytest.approx(100 / 70)
    assert runs.variance < 0.1
    totals.ran.add(1e6)
    runs = runs_of(totals)
    assert runs is not None
    assert runs.variance == 10, "one in a hundred is no reason to plan for nothing else"


def test_kinds_of_jobs_share_slots_by_their_weight() -> None:
    mixed = mixed_runs([(3, Runs(1.0, 0.0)), (1, Runs(9.0, 0.0, 2.0)), (5, None), (0, Runs(1000.0))])
    assert mixed is not None
    assert (mixed.seconds, mixed.per_job) == (3.0, 1.25)
    assert mixed.variance == pytest.approx((3 * 1 + 81) / 4 / 9 - 1)
    assert mixed_runs([(1, None)]) is None
