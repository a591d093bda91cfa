"""The seed of the stories that tests make up: new in each run, the same in all processes of one, and shown.

``HEADRACE_SEED=…`` repeats a run's stories. And how many there are, of whatever may go well by chance: ``make test``
kills once for each point at which something may break, ``make soak`` as often as the test says. Of made-up examples a
run tries a third of what the test says; with ``--every-engine``, as in ``make fuzz``, it tries all.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NAME = "HEADRACE_SEED"

SOAK = "HEADRACE_SOAK"
"""The environment variable that ``make soak`` sets."""

THOROUGH = "HEADRACE_THOROUGH"
"""The one that is set by ``--every-engine``, so that the processes that share the tests have it."""


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


def repeats(soak: int, otherwise: int = 1) -> int:
    """How often this run does it."""
    return soak if os.environ.get(SOAK) else otherwise


def examples(all_of_them: int) -> int:
    """How many this run tries."""
    return all_of_them if thorough() else max(all_of_them // 3, 1)


def thorough() -> bool:
    """Whether this run tries all there is."""
    return bool(os.environ.get(SOAK) or os.environ.get(THOROUGH))
