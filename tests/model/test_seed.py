"""A run has one seed, whatever processes share its tests, and says which."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.seed import NAME, pytest_configure, seed, told

pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).parents[2]

CONFTEST = "from tests.support.seed import pytest_configure, pytest_report_header\n"
TEST = """
from pathlib import Path

import pytest

from tests.support.seed import seed


@pytest.mark.parametrize("part", range(2))
def test_note(part):
    Path(__file__).with_name(f"{part}.seed").write_text(str(seed()))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_note.py").write_text(TEST)
    return tmp_path


def run(tree: Path, given: int | None = None) -> tuple[int, set[int]]:
    """Run two tests in two processes: the seed that was shown, and those the processes had."""
    environment = {name: value for name, value in os.environ.items() if name != NAME and "PYTEST" not in name}
    if given is not None:
        environment[NAME] = str(given)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "2",
            "--dist",
            "each",
            "-c",
            os.devnull,
            "--rootdir",
            str(tree),
            str(tree),
        ],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    [shown] = [line.partition("=")[2] for line in done.stdout.splitlines() if line.startswith(f"stories: {NAME}=")]
    return int(shown), {int(file.read_text()) for file in tree.glob("*.seed")}


def test_all_processes_of_a_run_have_the_seed_that_it_shows(tree: Path) -> None:
    shown, had = run(tree)
    assert had == {shown}


def test_a_seed_that_is_given_is_taken(tree: Path) -> None:
    assert run(tree, 7) == (7, {7})


def test_each_run_draws_another(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    drawn = set[int]()
    for _ in range(3):
        monkeypatch.delenv(NAME)
        pytest_configure(pytestconfig)
        drawn.add(seed())
    assert len(drawn) == 3


def _fail() -> None:
    with told():
        raise ValueError("oops")


def test_a_failure_says_how_to_repeat_it() -> None:
    with pytest.raises(ValueError, match="oops") as caught:
        _fail()
    assert caught.value.__notes__ == [f"the same stories again: {NAME}={seed()}"]
