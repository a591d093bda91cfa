"""The plugin as pytest loads it, and what the testing package does not drag along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

USERS_TEST = """
import asyncio
from headrace import App

app = App()

@app.task
def add(a: int, b: int) -> int:
    return a + b

def test_add(headrace_harness):
    async def main():
        async with headrace_harness(app) as h:
            job = await add.submit(1, 2)
            h.assert_submitted(add, 1, 2)
            await h.drain()
            assert (await h.job(job)).result == 3

    asyncio.run(main())
"""


def test_the_fixture_makes_harnesses(tmp_path: Path) -> None:
    (tmp_path / "test_add.py").write_text(USERS_TEST)
    # By name, in place of the entry point: an editable install may be older than the entry point.
    plugin = ["-p", "no:headrace", "-p", "headrace.testing.plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugin, "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_it_is_what_the_entry_point_names() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert 'headrace = "headrace.testing.plugin"' in project


def test_the_testing_package_needs_no_test_tools() -> None:
    unwanted = ("pytest", "_pytest", "hypothesis")
    code = f"import sys, headrace.testing; print([name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
