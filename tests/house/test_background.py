"""The tests pass however they are started: also where interrupts are ignored, as in the background of a script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(240),
]

ROOT = Path(__file__).resolve().parents[2]
ONE = "tests/cli/test_submit.py::test_an_interrupted_run_takes_its_job_along[2]"


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "by xdist"])
def test_a_program_that_a_test_interrupts_is_interrupted_also_in_the_background(workers: list[str]) -> None:
    command = ["/bin/sh", "-c", 'trap \'\' INT; exec "$0" -m pytest -q -p no:cacheprovider "$@"', sys.executable]
    done = subprocess.run([*command, ONE, *workers], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
