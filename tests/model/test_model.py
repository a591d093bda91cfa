"""Every engine tells the same story as the memory engine.

``HEADRACE_MODEL=long`` tries many more and longer stories, new ones each time.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from headrace.core.rules import Rules
from headrace.engine import Engine
from headrace.host import Host
from tests.model.machine import Machine
from tests.model.sides import Make
from tests.support.schemas import postgres_engine

LONG = os.environ.get("HEADRACE_MODEL") == "long"


def memory(rules: Rules, host: Host, place: Path) -> Engine:
    from headrace.engines.memory import MemoryEngine

    return MemoryEngine(rules, host)


def sqlite(rules: Rules, host: Host, place: Path) -> Engine:
    from headrace.engines.sqlite import SqliteEngine

    return SqliteEngine(place / "store.db", rules=rules, host=host, synchronous="normal")


@pytest.mark.timeout(3600 if LONG else 600)
@pytest.mark.parametrize("subject", [None, sqlite, postgres_engine], ids=["memory", "sqlite", "postgres"])
def test_the_same_story(subject: Make | None) -> None:
    makers = {"the model": memory} | ({} if subject is None else {"the subject": subject})

    class Story(Machine):
        def __init__(self) -> None:
            super().__init__(makers)

    run_state_machine_as_test(
        Story,
        settings=settings(
            max_examples=2000 if LONG else 150,
            stateful_step_count=100 if LONG else 50,
            deadline=None,
            derandomize=not LONG,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
