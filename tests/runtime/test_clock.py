"""Chance: ids that sort, never repeat, and are not shared by processes that were forked."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from headrace.runtime.clock import SystemDice

NOW = datetime(2026, 1, 1, tzinfo=UTC)

FORKS = """
import os
from datetime import UTC, datetime
from headrace.runtime.clock import SystemDice

dice, now = SystemDice(), datetime(2026, 1, 1, tzinfo=UTC)
if os.fork() == 0:
    print(dice.new_id(now), dice.token(), dice.chance(), flush=True)
    os._exit(0)
os.wait()
print(dice.new_id(now), dice.token(), dice.chance())
"""


def test_ids_sort_in_the_order_they_were_made_also_when_the_clock_steps_back() -> None:
    dice = SystemDice()
    ids = [dice.new_id(NOW - timedelta(seconds=n)) for n in range(100)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 100
    assert {id.version for id in ids} == {7}


def test_a_seed_makes_it_repeatable() -> None:
    one, other = SystemDice(7), SystemDice(7)
    assert [one.token(), one.chance(), one.new_id(NOW)] == [other.token(), other.chance(), other.new_id(NOW)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_process_makes_ids_of_its_own() -> None:
    # In a process of its own: this one has threads, and must not be forked.
    run = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True, timeout=60)
    child, parent = (line.split() for line in run.stdout.splitlines())
    assert all(mine != theirs for mine, theirs in zip(child, parent, strict=True))
