"""Writes the Python examples of the pages as modules, for type checkers: ``python docs/examples.py FOLDER``.

A page becomes a package, so that the files of two pages may have the same name; imports among them follow. mypy and
basedpyright, both strict, check them in ``make check``.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, it finds the pages as the tests do

from tests.docs.pages import WRITTEN, blocks, name  # noqa: E402


def main(folder: Path) -> None:
    """Write a package for each page that has examples."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # What two checkers think of: apsw says of bindings that they are of an unknown type, and of its block that it may
    # swallow an error.
    rules = {"reportUnknownMemberType": "none", "reportPossiblyUnboundVariable": "none"}
    config = {"typeCheckingMode": "strict", "venvPath": str(ROOT), "venv": ".venv", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config | rules))
    for page in WRITTEN:
        found = [
            one for one in blocks(page.read_text(encoding="utf-8")) if one.kind == "python" and (one.run or one.file)
        ]
        if not found or "decisions" in page.parts:
            continue
        package = re.sub(r"\W", "_", name(page).removesuffix(".md")).lower()
        home = folder / package
        home.mkdir(parents=True)
        (home / "__init__.py").write_text("")
        own = [Path(one.file).stem for one in found if one.file]
        imports = re.compile(rf"^(\s*)(from|import) ({'|'.join(map(re.escape, own)) or '(?!)'})\b", re.MULTILINE)
        for block in found:
            if not re.search(rf"^\s*(from|import) ({'|'.join(['headrace', *own])})\b(?!_)", block.body, re.MULTILINE):
                continue  # a program beside headrace, such as a worker that speaks HTTP
            text = imports.sub(partial(_within, package), block.body)
            (home / (block.file or f"line_{block.line}.py")).write_text(text, encoding="utf-8")


def _within(package: str, seen: re.Match[str]) -> str:
    space, word, module = seen.groups()
    return f"{space}from {package}.{module}" if word == "from" else f"{space}from {package} import {module}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
