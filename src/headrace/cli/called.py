"""How this command was called, so that a hint can be typed as it is printed."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

__all__ = ["hint", "is_relative", "program"]


def program() -> str:
    """What a person types for ``headrace`` here: its name if a shell finds it by that, else the way it was called."""
    called = sys.argv[0]
    path = Path(called)
    if path.name == "__main__.py":
        return f"{shlex.quote(_near(sys.executable))} -m headrace"
    found = shutil.which(path.name)
    if not path.exists() or (found is not None and os.path.samefile(found, called)):
        return "headrace"
    return shlex.quote(called)


def is_relative() -> bool:
    """Whether what :func:`program` says holds in this folder only."""
    return os.sep in (words := shlex.split(program())[0]) and not os.path.isabs(words)


def hint(*words: str) -> str:
    """A command line that does as it says."""
    return f"{program()} {shlex.join(words)}"


def _near(path: str) -> str:
    """The path from here where it lies below, as ``.venv/bin/python``."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
