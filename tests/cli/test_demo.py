"""The demo, played whole."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.conftest import Shell

pytestmark = pytest.mark.timeout(240)


def test_the_demo_goes_as_expected(shell: Shell) -> None:
    child = shell.start("demo", "--once")
    told, said = child.communicate(timeout=200)
    assert child.returncode == 0, told + said
    assert "11 of 11 as expected" in told
    assert "Traceback" not in said


def test_the_endless_demo_is_ended_by_an_interrupt(shell: Shell) -> None:
    child = shell.start("demo", "--json")
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["task"]
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=200)
    assert child.returncode == 0
