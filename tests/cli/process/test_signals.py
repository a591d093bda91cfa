"""Signals to a real process."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.cli.process import signals
from headrace.worker.process import signals as common

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals need a POSIX system"),
    pytest.mark.timeout(240),
]

POLITE = """
import asyncio, sys
from headrace.cli.process.signals import on_signals

async def main():
    over = asyncio.Event()
    with on_signals(lambda: print("first", flush=True), lambda: (print("second", flush=True), over.set())) as signals:
        print("ready", flush=True)
        await over.wait()
    return signals.code

sys.exit(asyncio.run(main()))
"""

BLOCKED = """
import asyncio, time
from headrace.cli.process import signals
signals.PATIENCE = {patience}

async def main():
    with signals.on_signals(lambda: None, lambda: None):
        print("ready", flush=True)
        while True:
            time.sleep(0.01)

asyncio.run(main())
"""


@contextmanager
def program(text: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
        child.kill()


def test_each_signal_is_one_step() -> None:
    with program(POLITE) as child:
        assert child.stdout is not None
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "first\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "second\n"
        assert child.wait(60) == 130


async def test_the_same_signal_again_at_once_is_an_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    async def heard(*numbers: int) -> list[str]:
        steps: list[str] = []
        told = signals.Signals(lambda: steps.append("first"), lambda: steps.append("second"))
        for number in numbers:
            told(number)
        await asyncio.sleep(0)
        told.rest()
        return steps

    monkeypatch.setattr(common, "ECHO_SECONDS", 3600)
    assert await heard(signal.SIGTERM, signal.SIGTERM, signal.SIGTERM) == ["first"]
    assert await heard(signal.SIGTERM, signal.SIGINT) == ["first", "second"]
    monkeypatch.setattr(common, "ECHO_SECONDS", 0)
    assert await heard(signal.SIGTERM, signal.SIGTERM) == ["first", "second"]


def test_a_blocked_loop_is_left_after_the_second_signal() -> None:
    with program(BLOCKED.format(patience=0.1)) as child:
        for _ in range(2):
            child.send_signal(signal.SIGTERM)
            # Two of one kind that are pending together arrive as one; the second is sent until it is heard.
        code = _insist(child)
        assert code == 128 + signal.SIGTERM


def _insist(child: subprocess.Popen[str]) -> int:
    while True:
        try:
            return child.wait(0.2)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGTERM)


def test_the_third_signal_waits_for_nothing() -> None:
    with program(BLOCKED.format(patience=3600)) as child:
        assert _insist(child) == 128 + signal.SIGTERM
