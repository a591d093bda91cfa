"""What a newcomer gets: the bare wheel, in an empty environment, with nothing but its own dependencies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output is shown when it fails."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HEADRACE_", "PYTHON"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.mark.timeout(400)
def test_the_bare_wheel_gives_a_working_engine_worker_and_command(tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("headrace-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    tools = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    run(tools / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel, cwd=tmp_path)
    assert "expected" in (demo := run(tools / "headrace", "demo", "--once", cwd=tmp_path)).stdout + demo.stderr
    url = "sqlite:///bare.db"
    submitted = run(tools / "headrace", "--url", url, "submit", "later", "n=1", "--json", cwd=tmp_path)
    shown = run(tools / "headrace", "--url", url, "show", json.loads(submitted.stdout)["id"], "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["status"] == "queued"
