"""What a newcomer gets: the bare wheel, in an empty environment, with nothing but its own dependencies.

Nothing is fetched: the wheel is built by what is here, and its dependencies are copied from where these tests run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from email.parser import Parser
from importlib.metadata import Distribution, distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output is shown when it fails."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HEADRACE_", "PYTHON"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def pip(*words: str | Path, cwd: Path) -> str:
    """Run pip without an index to ask."""
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", *words, cwd=cwd).stdout


def needed(texts: list[str], extra: str = "") -> Iterator[Distribution]:
    """What is installed here of these requirements, and of theirs in turn."""
    for requirement in map(Requirement, texts):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            found = distribution(requirement.name)
            yield found
            for wanted in ("", *requirement.extras):
                yield from needed(found.requires or [], wanted)


def copy(installed: Distribution, site: Path) -> None:
    """Install what is installed here there, too, but for its scripts."""
    for file in installed.files or []:
        if ".." not in file.parts and file.suffix != ".pyc":
            there = site / file
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(Path(str(installed.locate_file(file))).read_bytes())


def test_the_bare_wheel_gives_a_working_engine_worker_and_command(tmp_path: Path) -> None:
    pip("wheel", "-q", "--no-index", "--no-build-isolation", "--no-deps", "-w", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("headrace-*.whl")
    with ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        for file in ("templates/frame.html", "static/dashboard.js", "static/dashboard.css"):
            assert f"headrace/dashboard/{file}" in archive.namelist()
        asked = Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist", [])
    home = tmp_path / "env"
    venv.create(home, symlinks=os.name != "nt")
    paths = sysconfig.get_paths("venv", vars={"base": str(home), "platbase": str(home)})
    tools, site = Path(paths["scripts"]), Path(paths["platlib"])
    for installed in {one.name: one for one in needed(asked)}.values():
        copy(installed, site)
    there = ("--python", tools / "python")
    pip(*there, "install", "-q", "--no-index", "--no-deps", wheel, cwd=tmp_path)
    assert "No broken requirements" in pip(*there, "check", cwd=tmp_path)  # all of what it asks for is there
    listed = json.loads(pip(*there, "list", "--format", "json", cwd=tmp_path))
    assert "pytest" not in {one["name"] for one in listed}
    assert "expected" in (demo := run(tools / "headrace", "demo", "--once", cwd=tmp_path)).stdout + demo.stderr
    url = "sqlite:///bare.db"
    submitted = run(tools / "headrace", "--url", url, "submit", "later", "n=1", "--json", cwd=tmp_path)
    shown = run(tools / "headrace", "--url", url, "show", json.loads(submitted.stdout)["id"], "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["status"] == "queued"
    run(tools / "python", "-c", WITHOUT_DASHBOARD, cwd=tmp_path)


WITHOUT_DASHBOARD = """
import asyncio
from headrace import App
from headrace.cli.demo.command import _dashboard

async def main():
    async with App("memory://") as app, _dashboard(app, wanted=True) as address:
        assert address is None, "the demo goes on without what is not installed"

asyncio.run(main())
"""
