"""A folder with an App in it, and ways to type commands there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.root import cli
from tests.support.forks import HEADRACE, Command
from tests.support.sqlite_files import new_store

QUICK = """
import asyncio
import logging
from pathlib import Path
from headrace import App, Context, Retry, Snooze

app = App("sqlite:///jobs.db")

@app.task
def add(a: int, b: int = 1) -> int:
    return a + b

@app.task(queue="images", priority=70, tags=["pictures"])
async def resize(ctx: Context, image: str, width: int = 800) -> dict[str, str | int]:
    ctx.progress(50, "halfway")
    await ctx.flush()
    return {"image": image, "width": width}

@app.task(retry=Retry(max_retries=1, backoff=[0.01], jitter=False))
async def boom(what: str = "boom") -> None:
    raise ValueError(what)

@app.task(retry=Retry(max_retries=1, backoff=[0.01], jitter=False))
async def chatty(ctx: Context, lines: int = 2) -> None:
    for number in range(lines):
        logging.getLogger("shop").warning("line %d of attempt %d \\x1b[31m", number, ctx.attempt)
    if ctx.attempt == 1:
        raise ValueError("once more")

@app.task
async def slow(seconds: float = 60.0) -> str:
    for _ in range(int(seconds * 50)):
        if Path("go").exists():
            break
        await asyncio.sleep(0.02)
    return "done"
"""


class Shell:
    """Types commands in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'jobs.db'}"
        self._children: list[subprocess.Popen[str]] = []

    def __call__(self, *words: str, code: int = 0, input: str | None = None) -> Result:
        """Run a command in this process; it must end with this exit code."""
        result = CliRunner().invoke(cli, words, input=input, prog_name="headrace")
        assert result.exit_code == code, f"exit code {result.exit_code}: {result.output}"
        return result

    def json(self, *words: str, code: int = 0) -> Any:
        """Run a command with --json; the one document on its stdout."""
        return json.loads(self(*words, "--json", code=code).stdout)

    def submit(self, *words: str) -> str:
        """Submit a job of the App; its id."""
        return self("submit", *words, "--app", "quick").stdout.strip()

    def work(self) -> None:
        """Run everything that can be run now."""
        self("worker", "quick:app", "--burst")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command as a process of its own; ended with the test at the latest."""
        pipe = subprocess.PIPE
        command = [*HEADRACE, *words]
        child = Command(command, cwd=self.folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
        self._children.append(child)
        return child

    def end(self) -> None:
        """Leave nothing behind."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
            child.communicate()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A folder with quick.py and an empty store, made the current one."""
    (tmp_path / "quick.py").write_text(QUICK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "quick", raising=False)
    for name in ("HEADRACE_URL", "HEADRACE_APP", "HEADRACE_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    made = Shell(tmp_path)
    new_store(tmp_path / "jobs.db")
    yield made
    made.end()
    for name, module in list(sys.modules.items()):  # quick, and what a test wrote beside it
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
