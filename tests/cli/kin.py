"""A folder with an App whose jobs have children and batches, on several engines."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from click.testing import Result

from tests.cli.conftest import Shell

T = TypeVar("T")

KIN = """
from headrace import App, Context, Retry

app = App("{url}")

@app.task(retry=Retry(0))
async def leaf(n: int) -> int:
    if n < 0:
        raise ValueError(f"no {{n}}")
    return n

@app.task
async def branch(n: int) -> None:
    await leaf.map([(n * 100 + i,) for i in range(12)])

@app.task
async def tree() -> None:
    for n in (1, 2):
        await branch.submit(n)

@app.task
async def total(ctx: Context) -> int:
    return sum(await ctx.results(leaf))

@app.task
async def report(ctx: Context) -> None: ...
"""


class Kin:
    """Types commands about families; ``app`` is the App itself, for what a command cannot do."""

    def __init__(self, shell: Shell, url: str) -> None:
        (shell.folder / "kin.py").write_text(KIN.format(url=url))
        self._shell = shell
        self.module: Any = importlib.import_module("kin")

    def __call__(self, *words: str, code: int = 0) -> Result:
        return self._shell(*words, "--app", "kin", code=code)

    def json(self, *words: str, code: int = 0) -> Any:
        """Run a command with --json; the one document on its stdout."""
        return self._shell.json(*words, "--app", "kin", code=code)

    def submit(self, *words: str) -> str:
        """Submit a job; its id."""
        return self("submit", *words).stdout.strip()

    def work(self) -> None:
        """Run everything that can be run now."""
        self._shell("worker", "kin:app", "--burst")

    def within(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something in the open App."""

        async def inside() -> T:
            async with self.module.app:
                return await work

        return asyncio.run(inside())

    def batch(self, *numbers: int, **calls: Any) -> str:
        """Store a batch of leaves; its id."""

        async def fill() -> str:
            async with self.module.app.batch(**calls) as batch:
                batch.add_many(self.module.leaf.draft(n) for n in numbers)
            return str(batch.id)

        return self.within(fill())


@pytest.fixture(params=["memory://", "sqlite:///kin.db"])
def kin(shell: Shell, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kin]:
    """The folder with its App."""
    monkeypatch.syspath_prepend(str(shell.folder))
    yield Kin(shell, request.param)
    sys.modules.pop("kin", None)
