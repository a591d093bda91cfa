"""What the pages show is tried: blocks marked ``run`` are executed, page by page, in a directory of their own.

``python run`` is a program of its own. ``console run`` is a list of commands after ``$``, each of which must succeed.
``file=NAME`` keeps a block for those after it. A page that reads ``DATABASE_URL`` gets an empty PostgreSQL database.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, WRITTEN, Block, blocks, name
from tests.support.servers.postgres import shared

pytestmark = pytest.mark.timeout(240)

SHOWN = [page for page in WRITTEN if any(block.run or block.file for block in blocks(page.read_text(encoding="utf-8")))]


def environment(page: str) -> dict[str, str]:
    """What the programs of a page find: nothing of headrace's but what they say themselves."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), clean.get("PATH", "")])
    found = clean | {"PATH": path, "PYTHONWARNINGS": "error", "NO_COLOR": "1"}
    if "DATABASE_URL" in page:
        found["DATABASE_URL"] = shared().url(shared().create_database())
    return found


def run(words: list[str], place: Path, environ: Mapping[str, str]) -> str:
    """What the command prints; it must end well, and soon."""
    ran = subprocess.run(words, cwd=place, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, f"{shlex.join(words)}: exit code {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def script(block: Block, place: Path, environ: Mapping[str, str]) -> None:
    """Keep a program, and run it if it is marked so."""
    file = place / (block.file or "example.py")
    file.write_text(block.body, encoding="utf-8")
    if block.run:
        run([sys.executable, file.name], place, environ)


def session(block: Block, place: Path, environ: Mapping[str, str]) -> None:
    """Run the commands; what is shown beneath one must be what it prints."""
    for part in ("\n" + block.body).split("\n$ ")[1:]:
        command, _, shown = part.partition("\n")
        printed = run(shlex.split(command), place, environ)
        assert not shown.strip() or printed.strip() == shown.strip()


@pytest.mark.parametrize("page", SHOWN, ids=name)
def test_the_examples_of(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    environ = environment(text)
    for block in blocks(text):
        try:
            if block.kind == "python" and (block.run or block.file):
                script(block, tmp_path, environ)
            elif block.kind == "console" and block.run:
                session(block, tmp_path, environ)
            elif block.file:
                (tmp_path / block.file).write_text(block.body, encoding="utf-8")
        except AssertionError as error:
            error.add_note(f"{name(page)}, the block in line {block.line}")
            raise


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_the_programs_of_can_be_parsed(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.kind == "python":
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as snippets do
            compile(block.body, f"{name(page)}:{block.line}", "exec", flags=flags, dont_inherit=True)


def test_the_quickstart_and_the_readme_show_the_same_program() -> None:
    shown = []
    for page in ("README.md", "docs/quickstart.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        shown += [block.body for block in blocks(text) if block.file == "quick.py"]
    assert len(shown) == 2
    assert shown[0] == shown[1]
