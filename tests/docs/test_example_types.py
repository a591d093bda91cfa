"""Every Python block of the guides and of the README passes mypy --strict: programs, and fragments with what they take
for given (``docs/given.py``)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, WRITTEN, blocks

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("examples")
    subprocess.run([sys.executable, ROOT / "docs/examples.py", made], check=True)
    return made


@pytest.mark.xdist_group("example types")
def test_all_examples_pass_a_strict_type_checker(folder: Path) -> None:
    words = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--explicit-package-bases"]
    words += ["--cache-dir", str(ROOT / ".mypy_cache"), "."]  # as make check does, with what it has found out before
    env = os.environ | {"MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.xdist_group("example types")
def test_every_block_of_the_guides_is_among_them(folder: Path) -> None:
    texts = {re.sub(r"\s+", "", file.read_text(encoding="utf-8")) for file in folder.rglob("*.py")}
    for page in WRITTEN:
        if "guides" not in page.parts and page.stem != "README":
            continue
        for block in blocks(page.read_text(encoding="utf-8")):
            ours = re.search(r"^\s*(from|import) headrace\b", block.body, re.MULTILINE)
            if block.kind == "python" and (ours or not (block.run or block.file)):
                last = re.sub(r"\s+", "", block.body.strip().splitlines()[-1])
                assert any(last in text for text in texts), f"{page.name}, the block in line {block.line}"
