"""Writes the Python examples of the pages as modules, for type checkers: ``python docs/examples.py FOLDER``.

A page becomes a package, so that the files of two pages may have the same name; imports among them follow. mypy and
basedpyright, both strict, check them in ``make check``; mypy in a test, too.

A block of a guide or of the README that is no program becomes a module in ``fragments``: names that it takes for given
are imported from ``docs/given.py``. Only mypy checks those.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import shutil
import symtable
import sys
import textwrap
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a script, it finds the pages as the tests do

from tests.docs.pages import WRITTEN, Block, blocks, name  # noqa: E402

GUIDES = [page for page in WRITTEN if "guides" in page.parts or page.stem in ("README", "quickstart")]
GIVEN = ROOT / "docs" / "given.py"


def main(folder: Path) -> None:
    """Write a package for each page that has examples."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # What two checkers think of: apsw says of bindings that they are of an unknown type, and of its block that it may
    # swallow an error.
    rules = {"reportUnknownMemberType": "none", "reportPossiblyUnboundVariable": "none"}
    config = {
        "typeCheckingMode": "strict",
        "exclude": ["fragments"],
        "venvPath": str(ROOT),
        "venv": ".venv",
        "extraPaths": [str(ROOT / "src")],
    }
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

    # Django has no types; fragments leave out the bodies of functions.
    rest = "[mypy-django.*]\nignore_missing_imports = True\n[mypy-fragments.*]\ndisable_error_code = empty-body\n"
    (folder / "mypy.ini").write_text(f"[mypy]\n{rest}")
    _write_fragments(folder / "fragments")


def _write_fragments(home: Path) -> None:
    home.mkdir()
    (home / "__init__.py").write_text("")
    shutil.copy(GIVEN, home / "given.py")
    for page in GUIDES:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.kind == "python" and not block.run and not block.file:
                module = re.sub(r"\W", "_", f"{page.stem}_{block.line}").lower()
                (home / f"{module}.py").write_text(_fragment(page, block), encoding="utf-8")


def _fragment(page: Path, block: Block) -> str:
    """Return a block with what it takes for given; one that awaits stands in a function."""
    body = block.body.replace("from quick import", "from fragments.given import")
    if any(_awaits(node) for node in ast.parse(body).body):
        body = "async def example() -> None:\n" + textwrap.indent(body, "    ")
    there = _names(ast.parse(GIVEN.read_text(encoding="utf-8")))
    lines = ["from __future__ import annotations\n"]
    for used in sorted(_free(symtable.symtable(body, "fragment", "exec")) - set(dir(builtins))):
        own = f"{page.stem}_{used}"  # of this page alone
        lines.append(f"from fragments.given import {f'{own} as {used}' if own in there else used}")
    return "\n".join([*lines, "", body])


def _names(tree: ast.Module) -> set[str]:
    defined = {
        node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return defined | {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _free(table: symtable.SymbolTable) -> set[str]:
    """Return the names that a module uses and does not define."""
    own = table.get_symbols()
    is_module = table.get_type() == "module"
    used = {one.get_name() for one in own if one.is_referenced() and (is_module or one.is_global())}
    used = used.union(*(_free(child) for child in table.get_children()))
    return used - {one.get_name() for one in own if is_module and (one.is_assigned() or one.is_imported())}


def _awaits(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return False
    return isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) or any(map(_awaits, ast.iter_child_nodes(node)))


def _within(package: str, seen: re.Match[str]) -> str:
    space, word, module = seen.groups()
    return f"{space}from {package}.{module}" if word == "from" else f"{space}from {package} import {module}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
