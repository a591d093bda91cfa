"""What Tab completes, in a real bash on a real terminal; and that it is silent where there is nothing to complete."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.support.screens.terminal import look

pytestmark = pytest.mark.timeout(240)

BIN = Path(sys.executable).parent
TAB, PROMPT = "\t", "ready> "
PATIENT = {"_HEADRACE_COMPLETE_SECONDS": "60"}


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return {**clean, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **PATIENT, **more}


def completed(folder: Path, line: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Ask for completions of the last word of a line, as a shell does."""
    words = {"_HEADRACE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    env = environment(**words, **more)
    return subprocess.run(
        [BIN / "headrace"], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def offered(folder: Path, line: str) -> list[str]:
    done = completed(folder, line)
    assert (done.returncode, done.stderr) == (0, "")
    return [one.removeprefix("plain,") for one in done.stdout.split()]


def test_bash_completes_commands_tasks_ids_statuses_and_queues(shell: Shell) -> None:
    seen = look(
        ["bash", "--norc", "--noprofile", "-i"],
        size=(120, 40),
        env=environment(PS1=PROMPT, HEADRACE_APP="quick", INPUTRC=os.devnull),
        press=[
            (PROMPT, 'eval "$(_HEADRACE_COMPLETE=bash_source headrace)"\n'),
            (PROMPT, f"headrace sub{TAB}"),
            ("headrace submit ", f"resi{TAB}"),
            ("resize ", "image=cat.png\n"),
            (PROMPT, f"headrace show {TAB}"),
            (r"headrace show [-0-9a-f]{36} ", "\n"),
            (PROMPT, f"headrace jobs --status comp{TAB}"),
            ("--status completed ", f"--queue im{TAB}"),
            ("--queue images ", "--count\n"),
            (PROMPT, "exit\n"),
        ],
        cwd=shell.folder,
        limit=90,
    )
    assert seen.code == 0, seen
    assert '{"image": "cat.png"}' in "\n".join(seen.lines), "the job is shown"


def test_names_come_from_the_app_and_from_the_store(shell: Shell) -> None:
    first, second = shell.submit("add", "a=1"), shell.submit("resize", "image=x")
    assert sorted(offered(shell.folder, "headrace --app quick submit ")) == ["add", "boom", "chatty", "resize", "slow"]
    assert offered(shell.folder, f"headrace --url {shell.url} show ") == [second, first]
    assert offered(shell.folder, f"headrace --url {shell.url} cancel {first} {second[-6:]}") == [second], "by its end"
    assert sorted(offered(shell.folder, f"headrace --url {shell.url} queues pause ")) == ["default", "images"]
    shell("rates", "set", "mail", "5", "--per", "1s", "--url", shell.url)
    shell("schedules", "create", "nightly", "add", "a=1", "--every", "1h", "--url", shell.url)
    hook = shell.json("webhooks", "add", "https://hooks.example/", "--url", shell.url)["webhook"]["id"]
    assert offered(shell.folder, f"headrace --url {shell.url} rates reset ") == ["mail"]
    assert offered(shell.folder, f"headrace --url {shell.url} schedules pause n") == ["nightly"]
    assert offered(shell.folder, f"headrace --url {shell.url} webhooks show ") == [hook]
    assert offered(shell.folder, f"headrace --url {shell.url} workers drain ") == []


def test_an_app_that_prints_does_not_write_into_the_line(shell: Shell) -> None:
    source = (shell.folder / "quick.py").read_text()
    noise = "import sys\nprint('noise')\nprint('noise', file=sys.stderr)\n"
    (shell.folder / "noisy.py").write_text(noise + source)
    assert offered(shell.folder, "headrace --app noisy submit a") == ["add"]
    (shell.folder / "broken.py").write_text("raise SystemExit('no')")
    assert offered(shell.folder, "headrace --app broken submit a") == []


@pytest.mark.parametrize("url", ["sqlite:///nowhere.db", "postgresql://127.0.0.1:1/none", "nonsense"])
def test_a_store_that_is_not_there_completes_nothing_and_says_nothing(shell: Shell, url: str) -> None:
    assert offered(shell.folder, f"headrace --url {url} show ") == []
    assert not (shell.folder / "nowhere.db").exists()


async def test_a_store_that_does_not_answer_is_left(shell: Shell) -> None:
    held = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await held.wait()  # takes the connection, and never says a word
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        line = f"headrace --url postgresql://127.0.0.1:{port}/x --app quick submit ad"
        done = await asyncio.to_thread(completed, shell.folder, line, _HEADRACE_COMPLETE_SECONDS="15")
        held.set()
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["plain,add"], ""), (
        "the App's own names are there"
    )


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: Shell, name: str) -> None:
    env = environment(_HEADRACE_COMPLETE=f"{name}_source")
    done = subprocess.run([BIN / "headrace"], env=env, capture_output=True, text=True, check=True)
    assert f"_HEADRACE_COMPLETE={name}_complete" in done.stdout
