"""Every engine tells the same story as the memory engine.

The stories are new in each run; ``HEADRACE_SEED=…``, as a run shows it, tells those of that run again.
``HEADRACE_MODEL=long`` tells many more and longer ones.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from headrace.core.defaults import Rules
from headrace.engine import Engine
from headrace.runtime.host import Host
from tests.model.machine import Machine
from tests.model.sides import Make
from tests.support.hubs import Hubs
from tests.support.seed import examples as some
from tests.support.seed import told
from tests.support.servers.schemas import postgres_engine

LONG = os.environ.get("HEADRACE_MODEL") == "long"


def memory(rules: Rules, host: Host, place: Path) -> Engine:
    from headrace.engines.memory import MemoryEngine

    return MemoryEngine(rules, host)


def sqlite(rules: Rules, host: Host, place: Path) -> Engine:
    from headrace.engines.sqlite import SqliteEngine

    return SqliteEngine(place / "store.db", rules=rules, host=host, synchronous="normal")


@pytest.mark.timeout(7200 if LONG else 600)
def test_the_same_story_through_a_hub() -> None:
    """The hub has the store in its memory, as the model does: what differs, the wire has changed."""
    hubs = Hubs()

    def remote(rules: Rules, host: Host, place: Path) -> Engine:
        hubs.stop()  # that of the story before
        return hubs.engine(place, rules, host, lambda: memory(rules, Host(), place))

    class Story(Machine):
        def __init__(self) -> None:
            super().__init__({"the model": memory, "the subject": remote})

    try:
        with told() as number:
            tell(Story, number, examples=500 if LONG else some(20), steps=100 if LONG else 50)
    finally:
        hubs.close()


@pytest.mark.timeout(7200 if LONG else 1800)
@pytest.mark.parametrize("subject", [None, sqlite, postgres_engine], ids=["memory", "sqlite", "postgres"])
def test_the_same_story(subject: Make | None) -> None:
    makers = {"the model": memory} | ({} if subject is None else {"the subject": subject})

    class Story(Machine):
        def __init__(self) -> None:
            super().__init__(makers)

    with told() as number:
        tell(Story, number, examples=2000 if LONG else some(90), steps=100 if LONG else 50)


def tell(story: type[RuleBasedStateMachine], number: int, *, examples: int, steps: int) -> None:
    """Tell as many stories, those of this seed."""
    run_state_machine_as_test(
        seed(number)(story),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_seed_tells_its_own_stories_each_time() -> None:
    def stories(number: int) -> list[int]:
        heard: list[int] = []

        class Story(RuleBasedStateMachine):
            @rule(word=st.integers(0, 999))
            def hear(self, word: int) -> None:
                heard.append(word)

        tell(Story, number, examples=5, steps=10)
        return heard

    assert stories(1) == stories(1)
    assert stories(1) != stories(2)
