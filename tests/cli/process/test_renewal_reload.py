"""Renewing workers when files change."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.cli.process.renewal import renew_on_change


async def test_every_batch_of_changes_renews_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def batches() -> AsyncIterator[set[tuple[Any, str]]]:
        yield {(1, os.path.join(os.getcwd(), "a.py")), (2, os.path.join(os.getcwd(), "b.py"))}
        yield {(1, os.path.join(os.getcwd(), f"{name}.py")) for name in "abcd"}

    renewed: list[int] = []
    await renew_on_change(batches(), lambda: renewed.append(1))
    assert len(renewed) == 2
    assert capsys.readouterr().err.splitlines() == [
        "a.py, b.py changed: renewing workers",
        "a.py, b.py, c.py … changed: renewing workers",
    ]
