"""Programs of Debian's packages, unpacked in a folder of their own: nothing is installed, and no rights are needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["libraries", "make", "unpack"]

PATIENCE = 120.0
"""Seconds for one command."""

ROUNDS = 4
"""How deep the libraries of libraries are looked for."""


def make(final: Path, fill: Callable[[Path], object], missing: str) -> None:
    """Make a folder, unless it is there: whole or not at all; whoever comes second finds it done.

    :raises RuntimeError: it cannot be filled; it begins with ``missing``
    """
    if final.exists():
        return
    made = Path(tempfile.mkdtemp(prefix=f"{final.name}-new-", dir=final.parent))
    made.chmod(0o755)
    try:
        fill(made)
        made.rename(final)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(made)
        if not final.exists():
            raise RuntimeError(f"{missing}\n{getattr(error, 'stderr', '') or error}") from error


def unpack(folder: Path, package: str, program: str) -> None:
    """Unpack a package into ``root`` in this folder, and those of its libraries that this machine lacks.

    ``program``: the path of what is run.
    """
    _unpack(folder, [package])
    for _ in range(ROUNDS):
        environment = os.environ | {"LD_LIBRARY_PATH": libraries(folder)}
        if "not found" not in _run(folder, "ldd", str(folder / "root" / program), environment=environment):
            return
        _unpack(folder, sorted(_needed(folder)))


def libraries(folder: Path) -> str:
    """Where a program that was unpacked here finds libraries beside those of the system."""
    found = [str(each) for part in ("lib", "usr/lib") for each in folder.glob(f"root/{part}/*-linux-*")]
    return os.pathsep.join(found)


def _needed(folder: Path) -> set[str]:
    """The libraries that the packages here ask for, and that are not here yet."""
    packages = list(folder.glob("*.deb"))
    needs = {
        name
        for package in packages
        for name in re.findall(r"(?:^|, )(lib[^\s,:]+)", _run(folder, "dpkg-deb", "--field", str(package), "Depends"))
    }
    return needs - {"libc6"} - {package.name.partition("_")[0] for package in packages}


def _unpack(folder: Path, names: list[str]) -> None:
    try:
        _run(folder, "apt-get", "download", *names)
    except subprocess.CalledProcessError:
        _download_with_lists(folder, names)
    for package in folder.glob("*.deb"):
        _run(folder, "dpkg-deb", "--extract", str(package), str(folder / "root"))


def _download_with_lists(folder: Path, names: list[str]) -> None:
    """For a machine whose lists of packages are missing or old: fetch them for this once, which needs no rights."""
    with tempfile.TemporaryDirectory(dir=folder) as state:
        lists, archives = Path(state) / "lists", Path(state) / "cache" / "archives"
        for each in (lists, archives):
            (each / "partial").mkdir(parents=True)
        places = {"Dir::State::Lists": lists, "Dir::Cache": archives.parent, "APT::Sandbox::User": "root"}
        options = [f"--option={name}={value}" for name, value in places.items()]
        _run(folder, "apt-get", *options, "update")
        _run(folder, "apt-get", *options, "download", *names)


def _run(folder: Path, *command: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True, timeout=PATIENCE, env=environment
    )
    return done.stdout
