"""Tests of a group stay together, half the processes of a run begin with groups, and each test is run once."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain, groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]

GROUPS = {"few": 2, "more": 4, "many": 6}

STORY = f"""
import os
from pathlib import Path

import pytest

GROUPED = [(group, n) for group, count in {GROUPS}.items() for n in range(count)]
HERE = Path(__file__).parent


def note(name):
    with (HERE / os.environ["PYTEST_XDIST_WORKER"]).open("a") as file:
        print(name, file=file)


@pytest.mark.parametrize("name", [pytest.param(f"{{g}} {{n}}", marks=pytest.mark.xdist_group(g)) for g, n in GROUPED])
def test_group(name):
    note(name)


@pytest.mark.parametrize("number", range(30))
def test_single(number):
    note(f"single {{number}}")
"""


def test_groups_stay_together_and_half_the_processes_begin_with_them(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    (tmp_path / "test_story.py").write_text(STORY)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), str(tmp_path / "test_story.py")]
    done = subprocess.run([*command, *options], cwd=ROOT, check=False, capture_output=True, text=True)
    ran = {file.name: file.read_text().splitlines() for file in tmp_path.glob("gw*")}
    grouped = [f"{group} {n}" for group, count in GROUPS.items() for n in range(count)]
    assert "42 passed" in done.stdout, done.stdout
    assert sorted(chain(*ran.values())) == sorted([*grouped, *(f"single {n}" for n in range(30))])
    assert sorted(ran[name][0] for name in ("gw0", "gw1")) == ["few 0", "single 0"], ran
    kinds = {name: [kind for kind, _ in groupby(test.split()[0] for test in tests)] for name, tests in ran.items()}
    for group in GROUPS:
        assert sum(kinds[name].count(group) for name in kinds) == 1, ran
