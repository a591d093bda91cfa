"""The curl examples of the guide, run against a hub as the guide starts it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.hub.process import Running, started

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the examples are for a POSIX shell"),
    pytest.mark.timeout(120),
]

PAGE = (ROOT / "docs" / "guides" / "hub.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8470"
EXAMPLES = re.findall(r"^```console hub\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Running]:
    for block in blocks(PAGE):
        if block.file:
            (tmp_path / block.file).write_text(block.body, encoding="utf-8")
    with started(tmp_path, "up", "shop:app") as running:
        yield running


def commands() -> Iterator[tuple[str, str]]:
    """Each command, and what is shown beneath it."""
    for body in EXAMPLES:
        for part in ("\n" + body).split("\n$ ")[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown.strip()


def test_every_curl_example_works(hub: Running, tmp_path: Path) -> None:
    lines = list(commands())
    assert len(lines) > 10
    mark = "<<next>>"
    script = f"\necho '{mark}'\n".join(command for command, _ in lines).replace(ADDRESS, hub.address)
    ran = subprocess.run(
        ["bash", "-eu", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    printed = [one.strip() for one in ran.stdout.split(mark)]
    for (command, shown), said in zip(lines, printed, strict=True):
        wanted = ".*".join(re.escape(part) for part in shown.split("…"))
        assert re.fullmatch(wanted, said, re.DOTALL), f"{command}\nshown: {shown}\nsaid:  {said}"
