"""Builds the site of the documentation; run by ``make site`` and by ``tests/docs/test_site.py``.

The pages are written for readers of the repository. A copy of them, with links and fences as the generator wants them,
is built in a folder of its own, so that the pages need not know how they are served.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ROOT / "mkdocs.yml"
OUTSIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/engine/tiny_engine.py": "engines/tiny_engine.py",
}
"""What pages link to beside ``docs``, and where the site has it."""

_FENCED = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<text>!?\[[^\]]*\]\()(?P<target>[^)\s#]+)(?P<rest>(?:#[^)\s]*)?\))")


def files() -> dict[Path, str]:
    """Each file of the site with its path there."""
    docs = ROOT / "docs"
    inside = {file: file.relative_to(docs).as_posix() for file in sorted(docs.rglob("*")) if file.is_file()}
    served = {file: path for file, path in inside.items() if file.suffix != ".py" and "__pycache__" not in path}
    return served | {ROOT / name: path for name, path in OUTSIDE.items()}


def page(text: str, here: Path, paths: dict[Path, str]) -> str:
    """A page as the generator reads it.

    :raises ValueError: a link leads to a file that the site does not have
    """
    written, at = "", 0
    for block in _FENCED.finditer(text):
        written += _linked(text[at : block.start()], here, paths)
        written += f"{block[1]}```{block[2]}\n{block[3]}{block[1]}```"  # without what only the tests of examples read
        at = block.end()
    return written + _linked(text[at:], here, paths)


def _linked(prose: str, here: Path, paths: dict[Path, str]) -> str:
    return _LINK.sub(lambda link: _link(link, here, paths), prose)


def _link(link: re.Match[str], here: Path, paths: dict[Path, str]) -> str:
    if "://" in link["target"]:
        return link[0]
    file = (here.parent / link["target"]).resolve()
    if file not in paths:
        raise ValueError(f"{here.relative_to(ROOT)} links to {link['target']}, which is no part of the site")
    return link["text"] + os.path.relpath(paths[file], Path(paths[here]).parent) + link["rest"]


def build(target: Path) -> None:
    """Build the site into a folder.

    :raises subprocess.CalledProcessError: there was a warning, or an error; its ``stdout`` says which
    """
    with tempfile.TemporaryDirectory(prefix="headrace-site-") as name:
        folder = Path(name)
        paths = files()
        for file, path in paths.items():
            copy = folder / "docs" / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix == ".md":
                copy.write_text(page(file.read_text(encoding="utf-8"), file, paths), encoding="utf-8")
            else:
                shutil.copyfile(file, copy)
        shutil.copyfile(SETTINGS, folder / SETTINGS.name)
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(folder / "site", target)


if __name__ == "__main__":
    try:
        build(ROOT / "site")
    except subprocess.CalledProcessError as error:
        sys.exit(error.stdout)
