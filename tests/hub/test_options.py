"""The settings of a hub: what cannot be meant is refused by name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.hub import HubOptions


@pytest.mark.parametrize("name", ["worker_grace", "worker_lease"])
@pytest.mark.parametrize(
    "value", [0, 0.0, -1.0, float("nan"), float("inf"), 10**400, True, None, "10s", timedelta()], ids=type
)
def test_times_of_workers_are_finite_and_above_0(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        HubOptions(**{name: value})


@pytest.mark.parametrize("name", ["worker_grace", "worker_lease"])
def test_times_of_workers_are_seconds(name: str) -> None:
    for given in (5, 5.0, timedelta(seconds=5)):
        options: dict[str, Any] = {name: given}
        assert getattr(HubOptions(**options), name) == 5.0
