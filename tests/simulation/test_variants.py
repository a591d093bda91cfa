"""Broken variants: the small model finds every one, and says how."""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing.exhaustive.scenes import SCENES
from tests.simulation.variants import VARIANTS, Variant, install
from tests.support.seed import seed, thorough

ROOT = Path(__file__).parents[2]

_SAMPLE = 6
"""How many a run tries; with ``--every-engine`` and in ``make soak`` it tries all."""


def _tried() -> list[str]:
    return list(VARIANTS) if thorough() else sorted(random.Random(seed()).sample(list(VARIANTS), _SAMPLE))


def _found(name: str) -> list[str]:
    """The path by which the model finds a variant."""
    command = [sys.executable, "-m", "tests.simulation.variants", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stdout + done.stderr
    assert not done.stderr
    return re.findall(r"^ *\d+\. (.*)$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", _tried())
def test_the_model_finds_it(name: str) -> None:
    assert _found(name)


def test_the_path_is_the_shortest_one() -> None:
    assert [line.partition(":")[0] for line in _found("start rides on the last attempt")] == [
        "worker A claims",
        "worker A starts job 1",
        "worker A is buried",
        "the sweeper sweeps",
        "worker B claims",
        "worker B starts job 1",
    ]


def test_what_never_comes_to_rest_is_found() -> None:
    assert _found("batch never over")[-1].startswith("worker A completes job 2: job 2 completed")


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_its_line_is_there_once_and_the_broken_one_can_be_compiled(variant: Variant) -> None:
    spec = importlib.util.find_spec(variant.module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    assert source.count(variant.original) == 1
    compile(source.replace(variant.original, variant.broken), spec.origin, "exec")
    assert variant.original != variant.broken
    assert variant.scene in SCENES
    assert variant.faults <= SCENES[variant.scene].faults


def test_a_module_that_is_imported_already_cannot_be_broken() -> None:
    with pytest.raises(AssertionError, match="is imported already"):
        install(VARIANTS["fence without rev"])
