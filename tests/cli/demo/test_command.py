"""The demo, played whole: what comes of it, and what is to be seen of it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.demo import command
from headrace.cli.demo.app import ROWS
from headrace.cli.demo.screen import caption
from headrace.cli.output import console
from tests.cli.conftest import Shell
from tests.cli.patience import until_sync
from tests.support.screens.terminal import SIZES, Size, look

pytestmark = pytest.mark.timeout(240)

HEADRACE = [sys.executable, "-m", "headrace"]


class Stores:
    """The stores that demos leave for people to look at."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def of(self, text: str) -> None:
        """Note what a demo said of its store."""
        self._texts.append(text)

    def remove(self) -> None:
        for folder in re.findall(r"--url sqlite:///(/\S+)/demo\b", "\n".join(self._texts)):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def stores() -> Iterator[Stores]:
    """Where a test notes what is to be removed after it."""
    found = Stores()
    yield found
    found.remove()


def test_the_demo_goes_as_expected(shell: Shell, stores: Stores) -> None:
    child = shell.start("demo", "--once")
    told, said = child.communicate(timeout=200)
    stores.of(said)
    assert child.returncode == 0, told + said
    assert "11 of 11 as expected" in told
    assert "Traceback" not in said


def test_the_endless_demo_is_ended_by_a_signal(shell: Shell, stores: Stores) -> None:
    child = shell.start("demo", "--json")
    assert child.stdout is not None
    assert child.stderr is not None
    assert json.loads(child.stdout.readline())["task"]
    child.send_signal(signal.SIGTERM)
    told, said = child.stdout.read(), child.stderr.read()  # not communicate, which forgets what readline has buffered
    stores.of(said)
    assert child.wait(timeout=200) == 0
    assert all(json.loads(line)["id"] for line in told.splitlines())


def test_the_endless_demo_serves_the_dashboard_and_says_where(shell: Shell, stores: Stores) -> None:
    child = shell.start("demo")
    assert child.stderr is not None
    first = child.stderr.readline()
    found = re.fullmatch(r"watch it in a browser: (http://127\.0\.0\.1:\d+)\n", first)
    assert found is not None, first
    address = found[1]

    def shown() -> str:
        with urllib.request.urlopen(f"{address}/jobs", timeout=60) as answer:
            text: str = answer.read().decode()
            return text

    until_sync(lambda: "thumbnail" in shown())
    child.send_signal(signal.SIGTERM)
    stores.of(child.stderr.read())
    assert child.wait(timeout=200) == 0


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_demo_fits_its_screen_from_beginning_to_end(size: Size, stores: Stores) -> None:
    columns, rows = size
    seen = look([*HEADRACE, "demo", "--once"], size=size, limit=200)
    stores.of("\n".join(seen.lines))
    assert seen.code == 0, seen
    assert "11 of 11 as expected" in seen.lines
    assert "…" not in seen.text  # rich's sign for a word, and for a screen, that was cut
    assert "..." not in seen.text
    full = [frame for frame in seen.frames if any("what it shows" in line for line in frame)]
    assert full
    for frame in full:
        assert max(map(len, frame)) <= columns, "\n".join(frame)
        assert len(frame) <= rows, "\n".join(frame)
    last = "\n".join(full[-1])
    for task in ROWS:
        assert re.search(rf"^{task.name} +{re.escape(caption(task))}  ", last, re.MULTILINE), last
    for frame in full:
        times = [line[:12] for line in frame if re.match(r"\d\d:\d\d:\d\d\.\d{3} ", line)]
        assert times == sorted(times), "\n".join(frame)


def test_a_demo_without_a_terminal_tells_in_order_of_time(shell: Shell, stores: Stores) -> None:
    child = shell.start("demo", "--once")
    _, said = child.communicate(timeout=200)
    stores.of(said)
    times = re.findall(r"^(\d\d:\d\d:\d\d\.\d{3}) ", said, re.MULTILINE)
    assert len(times) > 10
    assert times == sorted(times)


def test_the_hints_of_a_demo_work_while_it_runs_and_after(shell: Shell, stores: Stores) -> None:
    child = shell.start("demo", "--once")
    assert child.stderr is not None
    assert "look from another terminal" in child.stderr.readline()
    hint = child.stderr.readline()
    stores.of(hint)
    assert "later" in child.stderr.readline()  # the first thing that happens: by then there are jobs

    def typed(line: str) -> str:
        return subprocess.run(line.split(), cwd=shell.folder, capture_output=True, text=True, check=True).stdout

    assert "thumbnail" in typed(hint)
    _, said = child.communicate(timeout=200)
    jobs, job = said.splitlines()[-2:]
    assert jobs == hint.strip()
    assert "completed" in typed(jobs)
    assert "no 30th of February" in typed(job)


def test_the_store_of_a_demo_is_removed_by_another_a_day_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "headrace-other").mkdir()
    (old := tmp_path / "headrace-old" / "demo").parent.mkdir()
    old.touch()
    first = command.new_store()
    assert old.exists()
    monkeypatch.setattr(command, "STORE_AGE_SECONDS", -1.0)
    assert command.new_store() != first
    assert not old.parent.exists()
    assert (tmp_path / "headrace-other").exists()


def test_a_hint_is_typed_the_way_the_command_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (script := tmp_path / "bin" / "headrace").parent.mkdir()
    script.touch(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", ["bin/headrace"])
    assert (console.hint("jobs", "--url", "a b"), console.is_relative()) == ("bin/headrace jobs --url 'a b'", True)
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert (console.program(), console.is_relative()) == (str(script), False)
    monkeypatch.setenv("PATH", str(script.parent))  # a shell finds it by its name
    assert console.program() == "headrace"
    monkeypatch.setattr(sys, "argv", ["/somewhere/headrace/__main__.py"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    assert console.program() == ".venv/bin/python -m headrace"


def test_debug_shows_the_frame_that_broke_the_demo(tmp_path: Path) -> None:
    program = """
import sys
from headrace.cli import main
from headrace.cli.demo import screen

def picture(*_):
    raise ValueError("no rows")

screen.picture = picture
sys.argv = ["headrace", "demo", "--debug"]
main()
"""
    seen = look([sys.executable, "-c", program], env={"TMPDIR": str(tmp_path)})
    assert seen.code == 1, seen
    said = "\n".join(seen.lines)
    assert 'File "<string>", line 7, in picture' in said
    assert said.count("Traceback") == 1
    assert "never retrieved" not in said
