"""Every page in a real browser, light and dark, on a laptop and on a phone.

It answers, complains of nothing, sticks out nowhere, stands where it belongs, and has no fault of accessibility,
whatever is open on it.

``HEADRACE_SCREENSHOTS=folder`` takes a picture of each.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from docs.scene import acted_out, served
from headrace import App
from tests.dashboard.looks import axe_faults, geometry_faults, sticking_out
from tests.dashboard.walk import SHOWN, Scheme, looks, walk
from tests.support.apps import url_of
from tests.support.seed import thorough

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "dashboard.md"
AXE: list[tuple[Scheme, str]] = [("light", "laptop"), ("dark", "phone")]
"""In which looks faults of accessibility are looked for, which takes longest: each scheme and each size is in one."""
ALL = thorough() or "HEADRACE_SCREENSHOTS" in os.environ
WAYS: dict[str, list[tuple[Scheme, str]]] = {"sqlite": looks() if ALL else AXE, "postgres": [("light", "laptop")]}
"""On which engine, and in which looks: what a page looks like does not depend on the engine."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[App, str, str]]:
    """A store in which all has happened, behind a hub."""
    async with served(url_of(request.param, tmp_path_factory.mktemp("scene"))) as (app, address):
        await acted_out(app)
        yield app, address, request.param


@pytest.mark.parametrize(
    "scene",
    [pytest.param(engine, marks=pytest.mark.xdist_group(f"walk-{engine}")) for engine in WAYS],
    indirect=True,
)
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.timeout(600)
async def test_every_page_looks_right(scene: tuple[App, str, str], browser: Browser) -> None:
    app, address, engine = scene
    ways = WAYS[engine]
    folder = os.environ.get("HEADRACE_SCREENSHOTS")
    heard, faults, stops = list[str](), list[str](), 0
    async for stop in walk(browser, app, address, heard, ways):
        stops += 1
        if folder:
            await stop.page.screenshot(path=Path(folder, f"{stop.label}.png"))
        found = [f"status {stop.status}"] if stop.status != 200 else []
        found += await sticking_out(stop.page) + await geometry_faults(stop.page)
        if engine == "sqlite" and (stop.scheme, stop.size) in AXE:
            found += await axe_faults(stop.page)
        faults += [f"{stop.label}: {fault}" for fault in found]
    assert stops == len(ways) * len(SHOWN)
    assert heard == []
    assert faults == []


def test_every_page_is_shown_in_the_guide() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    missing = [f"{name}-{scheme}-{size}" for name in SHOWN for scheme, size in looks()]
    assert [label for label in missing if f"images/dashboard/{label}.webp" not in text] == []
