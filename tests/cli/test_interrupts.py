"""Ctrl-C on a real terminal: whatever follows something ends at once, says what was seen, and shows no traceback."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.support.screens.terminal import CTRL_C, Seen, look

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="terminals need a POSIX system"),
    pytest.mark.timeout(240),
]

HEADRACE = [sys.executable, "-m", "headrace"]
ROOT = Path(__file__).parents[2]
AT_ONCE = 3.0
"""Seconds; a fifth of what jobs that run are given to end. A process alone takes one to end on a very busy machine."""

TALK = """
import asyncio, logging
from headrace import App

app = App("sqlite:///jobs.db")

@app.task
async def talk() -> None:
    for number in (1, 2):
        logging.getLogger("shop").warning("line %d", number)
    await asyncio.Event().wait()
"""

BATCH = """
import asyncio, quick

async def main():
    async with quick.app, quick.app.batch() as batch:
        batch.add(quick.add.draft(1))
    print(batch.id)

asyncio.run(main())
"""

HALT = """
import importlib.abc, os, signal, sys

class Halt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == os.environ.get("HALT_AT"):
            sys.meta_path.remove(self)
            heard, told = os.pipe()
            os.set_blocking(told, False)
            before = signal.set_wakeup_fd(told)
            print("imports", name, flush=True)
            os.read(heard, 1)
            signal.set_wakeup_fd(before)
        return None

sys.meta_path.insert(0, Halt())
"""
"""A sitecustomize that stands still where a module is about to be imported, until there is a signal."""


def interrupted(
    *words: str, at: str, within: float = AT_ONCE, command: list[str] | None = None, **options: object
) -> Seen:
    """Press Ctrl-C when this is on the screen; in one of three tries it is over in time, however busy the machine."""
    for _ in range(3):
        seen = look([*(command or HEADRACE), *words], press=[(at, CTRL_C)], **options)  # type: ignore[arg-type]
        assert "Traceback" not in seen.text, seen
        assert "exception" not in seen.text, seen
        if seen.took < within:
            return seen
    raise AssertionError(f"took too long three times: {seen}")


@pytest.mark.parametrize("at", ["what it shows", r"attempt 2 failed"], ids=["at once", "in the middle"])
def test_the_demo_ends_at_once_and_sums_up(at: str, tmp_path: Path) -> None:
    seen = interrupted("demo", at=at, env={"TMPDIR": str(tmp_path)})
    assert seen.code == 0, seen
    assert re.search(
        r"^headrace demo, .*, 1 round: .*\d+ (completed|not ended)", "\n".join(seen.lines), re.MULTILINE
    ), seen
    assert len([line for line in seen.lines if line]) <= 6, seen


def test_make_run_ends_at_once_and_sums_up(tmp_path: Path) -> None:
    # Not with what the make was told that runs these tests: ARGS, for one.
    make = ["env", "-u", "MAKEFLAGS", "-u", "MAKEOVERRIDES", "-u", "ARGS"]
    make += ["make", "--no-print-directory", "-C", str(ROOT), "-o", ".venv/.package"]
    seen = interrupted("run", at="attempt 1 failed", command=make, env={"TMPDIR": str(tmp_path)})
    said = "\n".join(seen.lines)
    assert "headrace demo, " in said
    assert "***" not in said  # nothing that make has to complain about
    # What it prints can be typed as it is, where it was printed.
    hints = [line for line in seen.lines if line.startswith(".venv/bin/headrace ")]
    assert hints, seen
    for hint in hints:
        done = subprocess.run(hint.split(), cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_a_demo_that_is_a_check_has_not_passed_when_interrupted(tmp_path: Path) -> None:
    assert interrupted("demo", "--once", at="what it shows", env={"TMPDIR": str(tmp_path)}).code == 130


def test_a_second_interrupt_is_no_worse(tmp_path: Path) -> None:
    keys = [("what it shows", CTRL_C), (r"\^C", CTRL_C)]
    seen = look([*HEADRACE, "demo"], press=keys, env={"TMPDIR": str(tmp_path)})
    assert "Traceback" not in seen.text, seen
    assert seen.code in (0, 130)


@pytest.mark.parametrize(
    ("keys", "code", "says"),
    [
        (CTRL_C, 130, "interrupted"),
        ("n\n", 1, "nothing done"),
        ("\n", 1, "nothing done"),
        ("\x04", 1, "nothing done"),
        ("y\n", 0, "cancelled"),
    ],
    ids=["Ctrl-C", "no", "enter", "Ctrl-D", "yes"],
)
def test_a_question_is_answered_by_one_key(keys: str, code: int, says: str, shell: Shell) -> None:
    id = shell.submit("add", "a=1", "--delay", "1h")
    seen = look([*HEADRACE, "cancel", "--task", "add", "--url", shell.url], press=[(r"\[y/N\]", keys)])
    assert seen.code == code, seen
    assert says in seen.lines[-2 if not seen.lines[-1] else -1], seen
    assert ("interrupted" in seen.text) == (code == 130), seen
    assert (shell.json("show", id, "--url", shell.url)["status"] == "cancelled") == (code == 0)


EARLY = ["headrace.cli.root", "click", "headrace.cli.exit_codes", "headrace.cli.options"]
"""Modules that every command imports before it begins."""


@pytest.mark.parametrize(
    ("module", "code", "says"),
    [
        *(
            (module, 130, "interrupted")
            for module in [*EARLY, "headrace.cli.demo.command", "headrace.cli.process.signals"]
        ),
        *(
            (module, 0, "the demo was interrupted before its first job")
            for module in [
                "headrace.cli.demo.app",
                "headrace.app",
                "headrace.engine",
                "headrace.cli.demo.screen",
                "rich.live",
                "headrace.engines.sqlite.engine",
                "apsw",
            ]
        ),
    ],
)
def test_the_demo_is_interrupted_while_it_starts(module: str, code: int, says: str, tmp_path: Path) -> None:
    seen = halted("demo", at=module, folder=tmp_path)
    assert seen.code == code, seen
    said = [line.removeprefix("^C") for line in seen.lines if "imports" not in line]
    assert [line for line in said if line] == [says], seen


@pytest.mark.parametrize("words", [("jobs",), ("worker", "quick:app"), ("demo", "--once")], ids="-".join)
@pytest.mark.parametrize("module", [*EARLY, "headrace.app"])
def test_a_command_is_interrupted_while_it_starts(words: tuple[str, ...], module: str, shell: Shell) -> None:
    assert halted(*words, at=module, folder=shell.folder).code == 130


def halted(*words: str, at: str, folder: Path) -> Seen:
    """Press Ctrl-C where a module is about to be imported."""
    (folder / "sitecustomize.py").write_text(HALT)
    env = {"TMPDIR": str(folder), "PYTHONPATH": str(folder), "HALT_AT": at}
    return interrupted(*words, at=rf"imports {at}\r?\n", within=2 * AT_ONCE, env=env, cwd=folder)


def test_watching_ends_at_once_and_says_how_the_job_stands(shell: Shell) -> None:
    id = shell.submit("add", "a=1")
    seen = interrupted("watch", id, "--app", "quick", at="queued", cwd=shell.folder)
    assert seen.code == 0, seen
    assert "add queued; it goes on unwatched" in "\n".join(seen.lines), seen
    assert shell.json("show", id, "--url", shell.url)["status"] == "queued"


def test_following_logs_ends_at_once_and_says_how_many_there_were(shell: Shell) -> None:
    (shell.folder / "talk.py").write_text(TALK)
    shell.start("worker", "talk:app")
    id = shell("submit", "talk", "--url", shell.url).stdout.strip()
    seen = interrupted("logs", "--follow", id, "--url", shell.url, at="line 2", cwd=shell.folder)
    assert seen.code == 0, seen
    assert "2 lines seen; the job goes on" in "\n".join(seen.lines), seen
    assert shell.json("show", id, "--url", shell.url)["status"] == "running"


def test_waiting_for_a_batch_ends_at_once_and_says_how_it_stands(shell: Shell) -> None:
    done = subprocess.run([sys.executable, "-c", BATCH], cwd=shell.folder, capture_output=True, text=True, check=True)
    id = done.stdout.strip()
    seen = interrupted("batch", id, "--wait", "--app", "quick", at="0 of 1 ended", cwd=shell.folder)
    assert seen.code == 0, seen
    assert "0 of 1 ended · live; it goes on unwatched" in "\n".join(seen.lines), seen


def test_a_program_that_watches_is_told_that_it_was_interrupted(shell: Shell) -> None:
    seen = interrupted("watch", shell.submit("add", "a=1"), "--app", "quick", "--json", at='"queued"', cwd=shell.folder)
    assert seen.code == 130, seen


def test_running_a_job_is_interrupted_and_cancels_it(shell: Shell) -> None:
    seen = interrupted("run", "add", "a=1", "--app", "quick", at="nothing to wait for|worker", cwd=shell.folder)
    assert seen.code == 130, seen
    assert shell.json("jobs", "--url", shell.url)["items"][0]["status"] == "cancelled"


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_stops_in_good_order_and_says_what_it_did(processes: str, shell: Shell) -> None:
    shell.submit("add", "a=1")
    words = ("worker", "quick:app", "--processes", processes)
    seen = look([*HEADRACE, *words], cwd=shell.folder, press=[("(?s)" + "at once.*" * int(processes), CTRL_C)])
    assert seen.code == 0, seen
    said = "\n".join(seen.lines)
    assert len(re.findall(r"stopped: \d+ done, 0 failed", said)) == int(processes), seen
    assert "Traceback" not in said
