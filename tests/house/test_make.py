"""What ``make`` shows a person while it sets up ``.venv``, and how the README goes on from there."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.docs.pages import ROOT, blocks


@pytest.mark.parametrize("uv", ["uv", ""], ids=["uv", "pip"])
def test_the_first_run_shows_what_is_being_installed(uv: str) -> None:
    words = ["make", "--dry-run", "--always-make", "--no-print-directory", "-C", str(ROOT), "run", f"UV={uv}"]
    steps = subprocess.run(words, capture_output=True, text=True, check=True).stdout.replace("\\\n", " ").splitlines()
    (installing,) = [step for step in steps if "--editable" in step]
    package = installing.rpartition("&&")[2]  # before it, pip brings itself up to date
    assert f"{uv} pip install" in package or "-m pip install" in package
    assert not re.search(r"\s(-q+|--quiet)\b", package)


@pytest.mark.skipif(not (ROOT / ".venv/bin/activate").exists(), reason="set up without make")
def test_from_a_clone_the_readme_leads_to_the_command() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## From a clone")[2].partition("\n## ")[0]
    *_, last = (block for block in blocks(section) if block.kind == "console")
    lines = [line.removeprefix("$ ") for line in last.body.splitlines()]
    path = "/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-ec", "\n".join(lines)], cwd=ROOT, env={"PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("headrace ")
