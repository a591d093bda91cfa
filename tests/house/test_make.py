"""What ``make`` shows a person while it sets up ``.venv``."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.docs.pages import ROOT


@pytest.mark.parametrize("uv", ["uv", ""], ids=["uv", "pip"])
def test_the_first_run_shows_what_is_being_installed(uv: str) -> None:
    words = ["make", "--dry-run", "--always-make", "--no-print-directory", "-C", str(ROOT), "run", f"UV={uv}"]
    steps = subprocess.run(words, capture_output=True, text=True, check=True).stdout.replace("\\\n", " ").splitlines()
    (installing,) = [step for step in steps if "--editable" in step]
    package = installing.rpartition("&&")[2]  # before it, pip brings itself up to date
    assert f"{uv} pip install" in package or "-m pip install" in package
    assert not re.search(r"\s(-q+|--quiet)\b", package)
