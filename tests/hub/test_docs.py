"""The documentation page: it needs nothing from elsewhere, and lets nothing in."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from headrace.hub import HubOptions
from tests.hub.rooms.world import world
from tests.hub.serving import serving


async def test_the_page_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        answer = await hub.client.get("/docs")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert re.findall(r"(?:https?:)?//[\w.-]+", re.sub(r"^\s*//.*$", "", answer.text, flags=re.MULTILINE)) == []
        assert set(re.findall(r"(?:src|href)=\"([^\"]*)\"", answer.text)) == {"data:,", "openapi.json"}


async def test_only_its_own_script_and_style_may_run(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        answer = await hub.client.get("/docs")
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert (policy["default-src"], policy["connect-src"]) == ("'none'", "'self'")
        for tag in ("script", "style"):
            [inner] = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
            assert policy[f"{tag}-src"] == f"'sha256-{b64encode(sha256(inner.encode()).digest()).decode()}'"
        assert not re.search(r"innerHTML|document\.write|\beval\b| style=| on\w+=\"", answer.text)


@pytest.mark.parametrize("root", ["", "/jobs"])
async def test_whoever_knows_no_path_finds_it(root: str, tmp_path: Path) -> None:
    options = HubOptions(root_path=root, maintenance=False, webhooks=False)
    async with serving(f"sqlite:///{tmp_path}/jobs.db", options) as hub:
        answer = await hub.client.get("/")  # the proxy has taken off the prefix
        assert (answer.status_code, answer.headers["location"]) == (307, f"{root}/docs")
