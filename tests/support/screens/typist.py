"""Types many commands, each on a terminal of its own and on its own copy of a store.

A process takes most of its time to import things, so this program imports them once and forks for each command. It
reads the work as JSON from stdin and writes what was seen as JSON to stdout.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from tests.support.forks import import_all
from tests.support.screens.terminal import Seen, Size, look_at_fork

__all__ = ["type_all"]

ROOT = Path(__file__).parents[3]


def type_all(
    commands: Mapping[str, Sequence[str]],
    *,
    size: Size,
    store: Path,
    press: Mapping[str, Sequence[tuple[str, str]]] | None = None,
) -> dict[str, Seen]:
    """What each command shows on a terminal of this size, by its name; ``{url}`` is that of its copy of the store."""
    work = {"commands": commands, "size": size, "store": str(store), "press": press or {}}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.screens.typist"],
        input=json.dumps(work),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name: Seen(**seen) for name, seen in json.loads(done.stdout).items()}


def main() -> None:
    """Do the work that stdin names."""
    import_all()
    work = json.loads(sys.stdin.read())
    found = {}
    for name, words in work["commands"].items():
        with TemporaryDirectory() as folder:
            for file in Path(work["store"]).parent.glob(f"{Path(work['store']).name}*"):
                if file.is_file():  # not the locks of its workers
                    shutil.copy(file, folder)
            url = f"sqlite:///{folder}/{Path(work['store']).name}"
            typed = [word.replace("{url}", url) for word in words]
            press = [(pattern, key) for pattern, key in work["press"].get(name, ())]
            found[name] = look_at_fork(partial(_headrace, typed), size=tuple(work["size"]), press=press)
    sys.stdout.write(json.dumps({name: dataclasses.asdict(seen) for name, seen in found.items()}))


def _headrace(words: Sequence[str]) -> NoReturn:
    from headrace.cli import main

    sys.argv = ["headrace", *words]
    # The streams of the process were pipes when it started; rich and click ask the objects, not the descriptors.
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode) for number, mode in ((0, "r"), (1, "w"), (2, "w")))  # noqa: SIM115
    main()
    os._exit(0)


if __name__ == "__main__":
    main()
