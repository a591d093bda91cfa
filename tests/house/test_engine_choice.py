"""Above the engines a test runs on SQLite, and on all of them if it is marked or asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.seed import seed

ROOT = Path(__file__).parents[2]

STORY = """
import pytest


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request):
    return request.param


@pytest.mark.parametrize("number", [1, 2])
def test_plain(store, number): ...


@pytest.mark.every_engine
def test_marked(store): ...


@pytest.mark.parametrize("kind", ["memory", "postgres"])
def test_not_on_sqlite(kind): ...


@pytest.mark.variants
@pytest.mark.parametrize("way", ["a", "b", "c", "d"])
def test_ways(way): ...
"""

ALWAYS = [
    *("test_marked[memory]", "test_marked[sqlite]", "test_marked[postgres]"),
    *("test_not_on_sqlite[memory]", "test_not_on_sqlite[postgres]"),
]
CHOSEN = ["test_plain[sqlite-1]", "test_plain[sqlite-2]"]
OTHERS = [f"test_plain[{kind}-{number}]" for kind in ("memory", "postgres") for number in (1, 2)]
WAYS = [f"test_ways[{way}]" for way in "abcd"]
TWO_WAYS = [WAYS[0], WAYS[1 + seed() % 3]]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], [*ALWAYS, *CHOSEN, *TWO_WAYS]),
        (["--every-engine"], [*ALWAYS, *CHOSEN, *OTHERS, *WAYS]),
        (["-k", "plain and postgres"], ["test_plain[postgres-1]", "test_plain[postgres-2]"]),
    ],
    ids=["by itself", "asked for all", "asked for one"],
)
def test_which_tests_are_run(words: list[str], found: list[str], tmp_path: Path) -> None:
    ran = collected(tmp_path, *words, str(tmp_path / "test_story.py"))
    assert sorted(ran) == sorted(found)


def test_what_is_named_with_its_engine_is_run(tmp_path: Path) -> None:
    assert collected(tmp_path, f"{tmp_path}/test_story.py::test_plain[memory-1]") == ["test_plain[memory-1]"]


def collected(folder: Path, *words: str) -> list[str]:
    (folder / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    (folder / "test_story.py").write_text(STORY)
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), *words]
    done = subprocess.run([*command, *options], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line]
