"""Pauses that grow."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from headrace.runtime.retries import Pauses
from headrace.testing.clock import FakeClock
from tests.support.world import SimHost


@pytest.fixture
def host() -> SimHost:
    return SimHost(FakeClock(datetime(2026, 1, 1, tzinfo=UTC)))


def test_each_is_longer_than_the_one_before_up_to_a_maximum(host: SimHost) -> None:
    pauses = Pauses(host, 0.25, 3.0)
    assert [pauses.next() for _ in range(6)] == [0.25, 0.5, 1.0, 2.0, 3.0, 3.0]
    pauses = Pauses(host, 1.0, 2.0, factor=1.5)
    assert [pauses.next() for _ in range(3)] == [1.0, 1.5, 2.0]


def test_after_a_reset_they_begin_anew(host: SimHost) -> None:
    pauses = Pauses(host, 0.25, 3.0)
    assert pauses.is_first
    pauses.next()
    pauses.grow()
    assert (pauses.is_first, pauses.seconds) == (False, 1.0)
    pauses.reset()
    assert (pauses.is_first, pauses.next()) == (True, 0.25)


def test_chance_spreads_them_and_they_grow_alike(host: SimHost) -> None:
    pauses = [Pauses(host, 1.0, 8.0, spread=(0.5, 1.5)) for _ in range(200)]
    for seconds in (1.0, 2.0, 4.0, 8.0, 8.0):
        assert {one.seconds for one in pauses} == {seconds}
        spread = sorted(one.next() for one in pauses)
        assert 0.5 * seconds <= spread[0] < 0.6 * seconds
        assert 1.4 * seconds < spread[-1] < 1.5 * seconds


async def test_sleeping_takes_that_long_and_ends_when_the_time_is_over(host: SimHost) -> None:
    pauses, began = Pauses(host, 1.0, 60.0, timeout=6.0), host.clock.monotonic()
    slept = []
    while await pauses.sleep():
        slept.append(host.clock.monotonic() - began)
    assert slept == [1.0, 3.0, 7.0], "the last begins before the time is over"
    assert not await pauses.sleep()
    forever = Pauses(host, 1.0, 60.0)
    assert all([await forever.sleep() for _ in range(100)])


async def test_a_wait_ends_with_its_event(host: SimHost) -> None:
    pauses, event, began = Pauses(host, 1.0, 60.0), asyncio.Event(), host.clock.monotonic()
    assert not await pauses.wait(event)
    assert not await pauses.wait(event)
    assert host.clock.monotonic() - began == 3.0
    event.set()
    assert await pauses.wait(event)
    assert host.clock.monotonic() - began == 3.0
