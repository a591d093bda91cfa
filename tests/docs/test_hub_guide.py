"""The curl examples of the guides, run against a hub as the guide starts it. ``…`` stands for what differs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.patience import until_sync
from tests.docs.pages import ROOT, blocks
from tests.hub.process import Running, started

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the examples are for a POSIX shell"),
    pytest.mark.timeout(120),
]

GUIDES = ROOT / "docs" / "guides"
ADDRESS = "http://127.0.0.1:8470"
MARK = "<<next>>"


def commands(guide: str) -> Iterator[tuple[str, str]]:
    """Each command of a guide, and what is shown beneath it."""
    page = (GUIDES / guide).read_text(encoding="utf-8")
    for body in re.findall(r"^```console hub\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for part in ("\n" + body).split("\n$ ")[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown.strip()


def is_as_shown(shown: str, said: str) -> bool:
    wanted = ".*".join(re.escape(part) for part in shown.split("…"))
    return re.fullmatch(wanted, said.strip(), re.DOTALL) is not None


def run_all(lines: list[tuple[str, str]], hub: Running, folder: Path, **settings: str) -> None:
    """Run the commands in one shell; each must say what is shown."""
    script = f"\necho '{MARK}'\n".join(command for command, _ in lines).replace(ADDRESS, hub.address)
    ran = subprocess.run(
        ["bash", "-eu", "-c", script],
        cwd=folder,
        env=environment(**settings),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    for (command, shown), said in zip(lines, ran.stdout.split(MARK), strict=True):
        assert is_as_shown(shown, said), f"{command}\nshown: {shown}\nsaid:  {said.strip()}"


def environment(**settings: str) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), clean.get("PATH", "")])
    return clean | {"PATH": path, "NO_COLOR": "1", "COLUMNS": "200"} | settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the App of the guide is."""
    for block in blocks((GUIDES / "hub.md").read_text(encoding="utf-8")):
        if block.file:
            (tmp_path / block.file).write_text(block.body, encoding="utf-8")
    return tmp_path


def test_every_curl_example_works(folder: Path) -> None:
    lines = list(commands("hub.md"))
    assert len(lines) > 10
    with started(folder, "up", "shop:app") as hub:
        run_all(lines, hub, folder)


# -- with keys

URL = "sqlite:///jobs.db"
SHOP = """
import asyncio
from pathlib import Path

from headrace import App, Context

app = App("sqlite:///jobs.db")


@app.task
async def resize(ctx: Context, image: str, width: int = 800) -> dict[str, str | int]:
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return {"image": image, "width": width}
"""
"""The App of the guide, whose jobs run for as long as the test wants to look at them."""


class Keyed:
    """A hub that wants a key, and one who has it."""

    def __init__(self, running: Running, key: str, folder: Path) -> None:
        self.running, self.key, self.folder = running, key, folder

    def post(self, path: str, **body: Any) -> Any:
        headers = {"authorization": f"Bearer {self.key}"}
        answer = httpx2.post(f"{self.running.address}/api/{path}", json=body, headers=headers, trust_env=False)
        assert answer.is_success, answer.text
        return answer.json()

    def submit(self) -> str:
        """The id of a new job."""
        return str(self.post("jobs", task="resize", payload={"image": "cat.png"})["job_id"])

    def watch(self, command: str, is_heard: Callable[[str], bool], meanwhile: Callable[[], object], **set: str) -> str:
        """All that a command says until that is enough, or it ends; ``meanwhile`` is done again and again."""
        said = self.folder / "said.txt"
        given = environment(HEADRACE_KEY=self.key, **set)
        words = ["bash", "-eu", "-c", "exec " + command.replace(ADDRESS, self.running.address)]
        with said.open("w") as file:
            process = subprocess.Popen(words, cwd=self.folder, env=given, stdout=file, stderr=subprocess.DEVNULL)
            try:
                until_sync(lambda: _step(meanwhile) or is_heard(said.read_text()) or process.poll() is not None)
            finally:
                process.kill()
                process.wait()
        return said.read_text()


def _step(meanwhile: Callable[[], object]) -> bool:
    meanwhile()
    return False


@contextmanager
def keyed(folder: Path) -> Iterator[Keyed]:
    command = ["headrace", "keys", "create", "guide", "--scope", "read,submit,act,admin", "--url", URL, "--json"]
    made = subprocess.run(command, cwd=folder, env=environment(), check=True, capture_output=True, text=True)
    with started(folder, "up", "shop:app") as running:
        yield Keyed(running, json.loads(made.stdout)["text"], folder)


def test_keys_are_made_and_sent_as_the_guide_says(folder: Path) -> None:
    lines = list(commands("keys.md"))
    assert len(lines) == 5
    with keyed(folder) as hub:
        run_all(lines, hub.running, folder, HEADRACE_KEY=hub.key, HEADRACE_URL=URL)


def test_jobs_are_followed_as_the_guide_says(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    (one, shown), (feed, shown_of_all) = commands("live.md")
    with keyed(tmp_path) as hub:
        hub.post("queues/default/pause")
        id, place = hub.submit(), tmp_path / "said.txt"

        def go_on() -> None:
            """One step after the other, as they are told."""
            told = place.read_text()
            if "event: position" in told:
                hub.post("queues/default/resume")
            if '"status":"running"' in told:
                (tmp_path / "go").touch()

        said = hub.watch(one, lambda told: '"ended":true' in told and told.endswith("\n\n"), go_on, ID=id)
        assert is_as_shown(shown, said), said

        def fail() -> None:
            """Until the feed is open and one is seen."""
            hub.post(f"jobs/{hub.submit()}/resolve", error="no")

        hub.post("queues/default/pause")
        said = hub.watch(feed, lambda told: "event: job" in told and told.endswith("\n\n"), fail)
        assert is_as_shown(shown_of_all, said), said
