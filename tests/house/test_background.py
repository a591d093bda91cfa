"""The tests pass however they are started: also where interrupts are ignored, as in the background of a script, or
where nothing is to be written beside the sources, as in many images."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(240),
]

ROOT = Path(__file__).resolve().parents[2]
ONE = "tests/cli/commands/test_submit.py::test_an_interrupted_run_takes_its_job_along[2]"


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "by xdist"])
def test_a_program_that_a_test_interrupts_is_interrupted_also_in_the_background(workers: list[str]) -> None:
    command = ["/bin/sh", "-c", 'trap \'\' INT; exec "$0" -m pytest -q -p no:cacheprovider "$@"', sys.executable]
    done = subprocess.run([*command, ONE, *workers], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_what_is_compiled_is_kept_also_if_the_environment_says_otherwise() -> None:
    look = "import subprocess, sys; print(sys.dont_write_bytecode)"
    below = f"subprocess.run([sys.executable, '-c', {look!r}], check=True)"
    done = subprocess.run(
        [sys.executable, "-c", f"import tests.conftest; {look}; sys.stdout.flush(); {below}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False"]
