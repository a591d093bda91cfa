"""The folders of tests are in memory if there is room, and empty once their test has passed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import folders

ROOT = Path(__file__).parents[2]

STORY = """
from pathlib import Path

def test_that_passes(tmp_path):
    (tmp_path / "inside" / "deep").mkdir(parents=True)
    (tmp_path / "inside" / "file").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(Path(__file__).parent)

def test_that_passes_too(tmp_path):
    (tmp_path / "file").touch()

def test_that_fails(tmp_path):
    (tmp_path / "file").touch()
    raise ValueError
"""


def test_a_folder_is_empty_once_its_test_has_passed_and_stays_if_it_has_failed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    (tmp_path / "test_story.py").write_text(STORY)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    options = ["--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "folders"), str(tmp_path / "test_story.py")]
    done = subprocess.run([*command, *options], cwd=ROOT, check=False, capture_output=True, text=True)
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    left = sorted(str(path.relative_to(tmp_path / "folders")) for path in (tmp_path / "folders").rglob("*"))
    assert [path for path in left if "current" not in path] == [
        "test_that_fails0",
        "test_that_fails0/file",
        "test_that_passes0",
        "test_that_passes_too0",
    ]


@pytest.mark.parametrize(("free", "chosen"), [(folders.ROOM, True), (folders.ROOM - 1, False)])
def test_they_are_in_memory_if_there_is_room(
    free: int, chosen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(folders.CHOSEN, raising=False)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=free))
    folders.choose(tmp_path)
    assert (os.environ.get(folders.CHOSEN) == str(tmp_path)) is chosen


def test_a_place_that_somebody_chose_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(folders.CHOSEN, "/elsewhere")
    folders.choose(tmp_path)
    assert os.environ[folders.CHOSEN] == "/elsewhere"
