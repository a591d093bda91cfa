"""The programs that examples and clients in other languages need: those installed, or fetched into the virtualenv.

As a program it sees to it that they are there; ``make`` runs it when it makes the virtualenv, so that no test fetches
them.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.support import npm
from tests.support.servers import debian

__all__ = ["openapi_typescript", "path"]

NEEDED = ("curl", "jq")
"""Programs of packages of the same name."""

TYPESCRIPT = ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3")
"""Packages of npm that make a client of the hub's document, and check a program that uses it."""


def path() -> str:
    """A PATH with bash's tools, curl and jq on it."""
    return os.pathsep.join([*(str(_found(name)) for name in NEEDED), os.environ.get("PATH", "")])


def openapi_typescript() -> Path:
    """The ``node_modules`` of openapi-typescript and of what its types are used with."""
    return npm.packages("openapi-typescript", *TYPESCRIPT)


def _found(name: str) -> Path:
    """The folder that holds the program."""
    if installed := shutil.which(name):
        return Path(installed).parent
    final = Path(sys.prefix) / f"headrace-{name}"
    debian.make(final, lambda made: _make(made, final, name), f"the tests need {name}: apt-get install -y {name}")
    return final


def _make(folder: Path, final: Path, name: str) -> None:
    debian.unpack(folder, name, f"usr/bin/{name}")
    where = debian.libraries(folder).replace(str(folder), str(final))
    program = folder / name
    program.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{where}" exec "{final}/root/usr/bin/{name}" "$@"\n')
    program.chmod(0o755)


if __name__ == "__main__":
    try:
        path()
        openapi_typescript()
    except RuntimeError as error:
        sys.exit(str(error))
