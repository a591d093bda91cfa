"""Which engines a test runs on.

What an engine must do, the conformance suite tests on all of them. A test of what is built on engines runs on SQLite
alone, even if it could run on others, unless its mark ``every_engine`` says that the engine matters: transactions,
processes that die or share a store, notifications, claims under limits, time. ``--every-engine`` runs each test
wherever it can run, and so does a test that is named with its parameter.

Where an engine is reached in many ways (drivers, pools), a test marked ``variants`` tries the first of them and one
other, by the seed of the run.
"""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from tests.support.seed import seed

__all__ = ["OPTION", "pytest_addoption", "pytest_collection_modifyitems"]

OPTION = "--every-engine"
MARK = "every_engine"
VARIANTS = "variants"

CHOSEN = "sqlite"
OTHERS = frozenset(["memory", "postgres"])

BELOW = ("tests/conformance/", "tests/crash/", "tests/engines/", "tests/model/", "tests/soak/")
"""Tests of the engines themselves, and those that run for minutes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs each test on all its engines."""
    parser.addoption(OPTION, action="store_true", help="run each test on every engine, and not only those marked so")


@pytest.hookimpl(trylast=True)  # after -k and -m: who asks for PostgreSQL alone gets it
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what another engine, or another way to one, would only repeat."""
    if config.getoption(OPTION) or any("[" in argument for argument in config.args):
        return
    chosen = {_same(item) for item in items if _engine(item) == CHOSEN}
    repeated = [item for item in items if _engine(item) in OTHERS and not _matters(item) and _same(item) in chosen]
    repeated += _other_variants(items)
    if repeated:
        config.hook.pytest_deselected(items=repeated)
        gone = set(repeated)
        items[:] = [item for item in items if item not in gone]


def _other_variants(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests on all ways but the first and one other."""
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker(VARIANTS):
            families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [item for first, *others in families.values() for n, item in enumerate(others) if n != seed() % len(others)]


def _matters(item: pytest.Item) -> bool:
    return item.nodeid.startswith(BELOW) or item.get_closest_marker(MARK) is not None


def _engine(item: pytest.Item) -> str | None:
    """The engine that a parameter of this test names."""
    return next((str(value) for value in _parameters(item).values() if _names_engine(value)), None)


def _same(item: pytest.Item) -> Hashable:
    """What tests have in common that differ by their engine only."""
    rest = {name: repr(value) for name, value in _parameters(item).items() if not _names_engine(value)}
    return item.nodeid.partition("[")[0], frozenset(rest.items())


def _names_engine(value: object) -> bool:
    return isinstance(value, str) and (value == CHOSEN or value in OTHERS)


def _parameters(item: pytest.Item) -> dict[str, object]:
    call = getattr(item, "callspec", None)
    return call.params if call else {}
