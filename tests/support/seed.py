"""The seed of the stories that tests make up: new in each run, the same in all processes of one, and shown.

``HEADRACE_SEED=…`` repeats a run's stories.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NAME = "HEADRACE_SEED"


def pytest_configure(config: pytest.Config) -> None:
    """Draw one, unless there is one; the processes that share the tests are started later, and inherit it."""
    os.environ.setdefault(NAME, str(random.SystemRandom().getrandbits(32)))


def pytest_report_header(config: pytest.Config) -> str:
    """What to set to have the same stories told again."""
    return f"stories: {NAME}={seed()}"


def seed() -> int:
    """The seed of this run."""
    return int(os.environ[NAME])


@contextmanager
def told() -> Iterator[int]:
    """The seed of this run; a failure within says how to repeat it."""
    try:
        yield seed()
    except BaseException as error:
        error.add_note(f"the same stories again: {NAME}={seed()}")
        raise
