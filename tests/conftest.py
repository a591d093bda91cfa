"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.support import folders, seed
from tests.support.engines import OPTION, pytest_addoption, pytest_collection_modifyitems
from tests.support.seed import THOROUGH, examples, pytest_report_header
from tests.support.turns import pytest_xdist_make_scheduler

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_report_header",
    "pytest_xdist_make_scheduler",
]

# In the background of a script interrupts are ignored, and whatever a process starts inherits that. An answer to them
# is not inherited, even one that does nothing: the tests go on ignoring interrupts, what they start does not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda number, frame: None)

# What is compiled is kept, also if the environment says otherwise (as that of many images does): the tests start
# hundreds of processes, and each would compile all it imports anew. `make` does the same, which is earlier.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

folders.choose()

_failed = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed and the number of examples, before tests are read; other processes of this run inherit both."""
    seed.pytest_configure(config)
    if config.getoption(OPTION):
        os.environ[THOROUGH] = "1"
    # How long an example takes says how busy the machine is, and nothing else.
    patient = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("patient", patient)
    settings.load_profile("patient")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector the tests themselves: they stay until the end, and are many."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note which test has failed, and empty the folder of one that has not."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
    place = getattr(item, "funcargs", {}).get("tmp_path")
    if report.when == "teardown" and place and _failed not in item.stash:
        folders.empty(place)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Keep the schemas of a test for the next ones, if it had any."""
    place = getattr(item, "funcargs", {}).get("tmp_path")
    yield
    schemas = sys.modules.get("tests.support.servers.schemas")
    if schemas and place:
        schemas.give_back(place)
