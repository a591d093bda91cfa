"""The store's time: how it is measured, what it never does, and what makes it unsure."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

from headrace.core.lifecycle.clock_steps import ClockStep
from headrace.runtime.clock import SystemClock
from headrace.runtime.host import Host
from headrace.runtime.store_clock import StoreClock
from headrace.testing.clock import FakeClock
from tests.support.wrong_clock import WrongClock

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""The store's time when a test begins; the machine's clock is whatever the test says."""


class Asleep(FakeClock):
    """A fake clock of a machine that can sleep."""

    slept = 0.0

    def uptime(self) -> float:
        return self.monotonic() + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.step(seconds)


class Server:
    """A store with a clock of its own; an answer takes ``there`` seconds to be said and ``back`` to arrive."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.ahead, self.asked = clock, NOW - clock.now(), 0
        self.there = self.back = 0.0

    @property
    def now(self) -> datetime:
        return self.clock.now() + self.ahead

    async def time(self) -> datetime | None:
        self.asked += 1
        self.clock.advance(self.there)
        said = self.now
        self.clock.advance(self.back)
        return said


def wrong_by(seconds: float) -> tuple[Asleep, Server, StoreClock]:
    local = Asleep(NOW + timedelta(seconds=seconds))
    server = Server(local)
    return local, server, StoreClock(local)


def off(server: Server, clock: StoreClock) -> float:
    """How wrong it is."""
    return (clock.now() - server.now).total_seconds()


def unsure(clock: StoreClock) -> bool:
    return clock.is_unsure


def old(clock: StoreClock) -> bool:
    return clock.now_unless_old() is None


def steps(clock: StoreClock) -> tuple[ClockStep, ...]:
    return clock.steps


async def test_until_it_is_measured_it_is_the_machines_time() -> None:
    local, _, clock = wrong_by(3600)
    assert clock.now() == local.now()
    assert (clock.apart, old(clock), unsure(clock)) == (0.0, False, False)


@pytest.mark.parametrize("wrong", [-3600, -90, 0, 90, 3600])
async def test_once_measured_it_is_the_stores_whatever_the_machine_thinks(wrong: float) -> None:
    local, server, clock = wrong_by(wrong)
    await clock.measure(server.time)
    assert off(server, clock) == 0
    assert clock.apart == wrong
    local.advance(100)
    assert off(server, clock) == 0
    assert steps(clock) == ()  # from one clock to another is no step


async def test_the_store_is_believed_to_have_answered_in_the_middle_of_the_round_trip() -> None:
    _, server, clock = wrong_by(90)
    server.there = server.back = 0.2
    await clock.measure(server.time)
    assert off(server, clock) == pytest.approx(0, abs=1e-5)
    lame = wrong_by(90)
    lame[1].there = 0.4  # and never wrong by more than half of it
    await lame[2].measure(lame[1].time)
    assert off(*lame[1:]) == pytest.approx(0.2, abs=1e-5)


async def test_the_lowest_round_trip_of_the_last_eight_counts() -> None:
    local, server, clock = wrong_by(0)
    server.back = 0.1
    await clock.measure(server.time)  # twice, at first: how wrong it is shows how long the trip was
    server.back = 0.02
    await clock.measure(server.time)
    server.back = 0.3
    for _ in range(7):
        await clock.measure(server.time)
        assert off(server, clock) == pytest.approx(-0.01, abs=1e-5)
    await clock.measure(server.time)
    local.advance(1)  # it has stood still, rather than go back
    assert off(server, clock) == pytest.approx(-0.15, abs=1e-5)


async def test_it_stands_still_rather_than_go_back() -> None:
    local, server, clock = wrong_by(0)
    server.there = 0.8
    await clock.measure(server.time)  # believes to be 0.4 s later than it is
    server.there = 0.0
    before = clock.now()
    await clock.measure(server.time)
    seen = [clock.now()]
    for _ in range(10):
        local.advance(0.1)
        seen.append(clock.now())
    assert seen == sorted(seen)
    assert seen[:4] == [before] * 4
    assert off(server, clock) == pytest.approx(0, abs=1e-5)
    assert steps(clock) == ()


@pytest.mark.parametrize("by", [3600.0, -3600.0, 1.5, -1.5])
async def test_a_step_of_the_stores_clock_is_followed_and_noticed(by: float) -> None:
    local, server, clock = wrong_by(90)
    for _ in range(8):
        await clock.measure(server.time)
    server.ahead += timedelta(seconds=by)
    local.advance(5)
    await clock.measure(server.time)
    assert off(server, clock) == 0
    assert [(step.at, round(step.by, 3)) for step in steps(clock)] == [(server.now, by)]


async def test_a_small_correction_of_the_stores_clock_is_followed_at_once_but_no_step() -> None:
    local, server, clock = wrong_by(0)
    for _ in range(8):
        await clock.measure(server.time)
    for by in (0.5, -0.5):
        server.ahead += timedelta(seconds=by)
        await clock.measure(server.time)
        local.advance(1)
        assert off(server, clock) == pytest.approx(0, abs=1e-5)
    assert steps(clock) == ()


async def test_a_slow_answer_is_no_step() -> None:
    _, server, clock = wrong_by(0)
    await clock.measure(server.time)
    server.there = 40.0  # a store that was frozen
    await clock.measure(server.time)
    assert (steps(clock), off(server, clock)) == ((), 0)


async def test_a_set_wall_clock_makes_it_unsure_until_it_has_measured_and_changes_nothing() -> None:
    local, server, clock = wrong_by(0)
    await clock.measure(server.time)
    local.step(3600)
    server.ahead -= timedelta(seconds=3600)  # which has not moved
    assert unsure(clock)
    assert old(clock)
    assert off(server, clock) == 0
    await clock.measure(server.time)
    assert not unsure(clock)
    assert (off(server, clock), clock.apart, steps(clock)) == (0, 3600, ())


async def test_a_sleep_makes_it_unsure_and_is_counted() -> None:
    local, server, clock = wrong_by(90)
    await clock.measure(server.time)
    local.sleep(600)
    assert off(server, clock) == 0
    assert unsure(clock)
    await clock.measure(server.time)
    assert not unsure(clock)
    # By monotonic time nothing has passed, so that whoever is judged by deadlines must be judged without it.
    assert [(step.at, round(step.by, 3)) for step in steps(clock)] == [(server.now, 600)]


async def test_where_only_the_wall_shows_a_sleep_a_measurement_makes_up_for_it() -> None:
    local = FakeClock(NOW)
    server, clock = Server(local), StoreClock(local)
    await clock.measure(server.time)
    local.step(600)
    assert off(server, clock) == -600
    assert unsure(clock)
    await clock.measure(server.time)
    assert (off(server, clock), unsure(clock)) == (0, False)
    assert [round(step.by, 3) for step in steps(clock)] == [600]


async def test_what_was_on_its_way_during_a_sleep_measures_nothing() -> None:
    local = FakeClock(NOW)
    server, clock = Server(local), StoreClock(local)
    await clock.measure(server.time)
    asked, said = clock.asking(), server.now
    local.step(600)
    clock.told(asked, said)
    assert unsure(clock)


async def test_a_store_without_a_clock_has_the_machines() -> None:
    local, server, clock = wrong_by(3600)
    await clock.measure(server.time)

    async def nothing() -> datetime | None:
        return None

    await clock.measure(nothing)  # another store, as under ``override``
    assert clock.now() == local.now()
    assert (steps(clock), unsure(clock), clock.apart) == ((), False, 0.0)


@pytest.mark.parametrize("by", [3600.0, -3600.0])
async def test_steps_of_the_machines_clock_are_noticed_where_the_store_has_no_other(by: float) -> None:
    local = Asleep(NOW)
    clock = StoreClock(local)
    local.advance(7)
    clock.look()
    assert steps(clock) == ()
    local.step(by)
    clock.look()
    clock.look()
    assert steps(clock) == (ClockStep(local.now(), by),)
    assert not unsure(clock)  # there is nothing to measure


async def test_a_sleep_is_a_step_too_where_the_store_has_no_other_clock() -> None:
    local = Asleep(NOW)
    clock = StoreClock(local)
    local.sleep(600)
    clock.look()
    assert steps(clock) == (ClockStep(local.now(), 600.0),)


async def test_a_thread_that_was_stopped_while_it_read_the_clocks_has_seen_no_step() -> None:
    class Stopping(FakeClock):
        stops = 0

        def now(self) -> datetime:
            """The process is stopped for 5 s right after the wall clock was read."""
            found = super().now()
            if self.stops:
                self.stops -= 1
                self.advance(5)
            return found

    local = Stopping(NOW)
    clock = StoreClock(local)
    local.stops = 1
    clock.look()
    clock.look()
    assert steps(clock) == ()


async def test_it_is_old_half_a_minute_after_it_was_measured() -> None:
    local, server, clock = wrong_by(0)
    await clock.measure(server.time)
    local.advance(30)
    assert not old(clock)
    local.advance(0.1)
    assert old(clock)
    await clock.measure(server.time)
    assert not old(clock)


async def test_the_real_clock_of_this_machine_runs_on_after_it_was_set_by_another() -> None:
    clock = StoreClock(WrongClock(off=-90))

    async def time() -> datetime | None:
        return datetime.now(UTC)

    await clock.measure(time)
    assert abs((clock.now() - datetime.now(UTC)).total_seconds()) < 1
    assert clock.apart == pytest.approx(-90, abs=1)
    moments = [clock.now() for _ in range(1000)]
    assert moments == sorted(moments)
    assert clock.now().tzinfo is UTC


async def test_a_host_measures_only_what_is_a_store_clock() -> None:
    local, server, clock = wrong_by(90)
    plain, host = Host(local), Host(clock)
    await plain.measure(server)
    await plain.make_sure(server)
    assert (server.asked, plain.store_clock) == (0, None)
    await host.measure(server)
    assert server.asked == 2  # the first answer may have waited for a connection
    await host.make_sure(server)
    assert server.asked == 2
    local.step(60)
    await host.make_sure(server)
    assert server.asked == 4
    assert isinstance(Host().clock, StoreClock)
    assert isinstance(Host().clock.local, SystemClock)  # type: ignore[attr-defined]


async def test_threads_that_look_at_once_notice_a_step_once() -> None:
    for _ in range(20):
        local = WrongClock()
        clock = StoreClock(local)
        begin = threading.Barrier(4)

        def look(clock: StoreClock = clock, begin: threading.Barrier = begin) -> None:
            begin.wait()
            for _ in range(50):
                clock.look()

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        begin.wait()
        local.set(3600)
        for thread in threads:
            thread.join()
        clock.look()
        assert [round(step.by) for step in steps(clock)] == [3600]


FORKS = """
import os, threading
from headrace.runtime.clock import SystemClock
from headrace.runtime.store_clock import StoreClock

clock, held, done = StoreClock(SystemClock()), threading.Event(), threading.Event()

def holds():
    with clock._lock:
        held.set()
        done.wait()

threading.Thread(target=holds).start()
held.wait()
if os.fork() == 0:
    clock.look()
    print("looked", flush=True)
    os._exit(0)
os.wait()
done.set()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_fork_leaves_no_lock_behind() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "looked\n"
