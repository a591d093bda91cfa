"""The documentation page: it needs nothing from elsewhere, and lets nothing in."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from tests.hub.api.world import world


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
