"""Following many jobs on the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from headrace.cli.commands import feed as command
from headrace.core.updates import Changed
from tests.cli.conftest import Shell
from tests.cli.test_interrupts import HEADRACE
from tests.support.screens.terminal import CTRL_C, look

pytestmark = pytest.mark.timeout(240)


def begun(shell: Shell, *words: str) -> subprocess.Popen[str]:
    """A feed in a script, which has begun to listen."""
    child = shell.start("feed", *words, "--url", shell.url)
    assert child.stderr is not None
    assert "waiting for changes" in child.stderr.readline()
    return child


def test_each_change_is_a_line(shell: Shell) -> None:
    followed = begun(shell, "--json", "--task", "resize")
    assert followed.stdout is not None
    shell.submit("add", "a=1")
    id = shell.submit("resize", "image=a.png")
    lines = [json.loads(followed.stdout.readline())]
    shell.work()
    while lines[-1]["status"] != "completed":
        lines.append(json.loads(followed.stdout.readline()))
    assert {line["id"] for line in lines} == {id}
    assert lines[0]["status"] == "queued"
    os.killpg(followed.pid, signal.SIGINT)
    followed.communicate(timeout=60)
    assert followed.returncode == 130


def test_plain_lines_for_scripts(shell: Shell) -> None:
    followed = begun(shell, "--status", "completed", "--status", "failed")
    assert followed.stdout is not None
    id = shell.submit("add", "a=1")
    shell.work()
    words = followed.stdout.readline().split()
    assert words[1:] == [id, "add", "completed", "·", "2"]
    followed.send_signal(signal.SIGTERM)
    followed.communicate(timeout=60)


def test_on_a_terminal_lines_fit_and_ctrl_c_says_how_many(shell: Shell) -> None:
    shell.start("worker", "quick:app")
    submit = " ".join([*HEADRACE, "submit", "boom", f"what={'x' * 200}", "--url", shell.url])
    # What was over before it began to listen is not shown, so there is more for as long as it lives.
    script = f"(while kill -0 $$; do {submit}; done) >/dev/null 2>&1 & exec {' '.join(HEADRACE)} feed --url {shell.url}"
    seen = look(["sh", "-c", script], cwd=shell.folder, size=(80, 24), press=[("exhausted", CTRL_C)])
    assert seen.code == 0, seen
    assert "Traceback" not in seen.text
    lines = [line.removeprefix("^C") for line in seen.lines]  # which the terminal shows, wherever it is pressed
    assert max(map(len, lines)) <= 80
    assert any("boom failed (retries exhausted) · ValueError: xxx" in line for line in seen.lines), seen
    assert any("shown" in line for line in seen.lines), seen


def test_what_was_left_out_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    command._print(Changed((), 1200))
    command._print_json(Changed((), 1200))
    command._shown()(Changed((), 1))
    out = capsys.readouterr().out.splitlines()
    assert out == [
        "… 1,200 changes left out: too many at once",
        '{"dropped":1200}',
        "… 1 change left out: too many at once",
    ]


def test_a_filter_that_means_nothing_is_refused(shell: Shell) -> None:
    shell("feed", "--status", "gone", "--url", shell.url, code=2)
    shell("feed", "--parent", "ffffffff", "--url", shell.url, code=3)
