"""The child processes of the benchmark, as the harness sees them."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil  # type: ignore[import-untyped]

from bench.plan import EngineName, SideName
from bench.programs import ROOT, program

__all__ = ["TREE", "BrokenDown", "Child", "Crew", "ask", "ask_and_time", "crew"]

TREE = "HEADRACE_BENCH_TREE"
"""Names the checkout that is measured, if it is another one: its own programs drive it."""
PATIENCE = 180.0
"""Seconds of silence after which a child counts as stuck."""


class BrokenDown(Exception):
    """A child process ended, or got stuck, before it had said what it was asked."""


class Child:
    """One process; what it says goes into an inbox it may share with others."""

    def __init__(self, process: subprocess.Popen[str], name: str, inbox: queue.Queue[tuple[Child, str]]) -> None:
        self._process, self._name, self._inbox = process, name, inbox
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._inbox.put((self, line))
        self._inbox.put((self, ""))

    def understand(self, line: str) -> dict[str, Any]:
        """What a line of this child's says."""
        if not line:
            raise BrokenDown(f"{self._name}: no answer, exit code {self._process.wait()}")
        facts: dict[str, Any] = json.loads(line)
        return facts

    def tell(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BrokenDown(f"{self._name}: gone, exit code {self._process.wait()}") from None

    def freeze(self) -> None:
        """Halt it where it is."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on where it was halted."""
        os.kill(self._process.pid, signal.SIGCONT)

    def processor_time(self) -> float:
        """The seconds of processor time that it has used so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def rss(self) -> float:
        """Its resident memory in MB."""
        return float(psutil.Process(self._process.pid).memory_info().rss) / 1e6

    def cpu(self) -> float:
        """Seconds of processor time that it has used, all its threads together."""
        return time.clock_gettime((~self._process.pid << 3) | 2)  # Linux: the clock of another process

    def leave(self) -> None:
        """Wait until it has ended in good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if code := self._process.wait(60):
            raise BrokenDown(f"{self._name}: exit code {code}")

    def end(self) -> None:
        """See to it that it is gone."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


class Crew:
    """Worker processes on one store."""

    def __init__(self, children: Sequence[Child], inbox: queue.Queue[tuple[Child, str]]) -> None:
        self.children = children
        self._inbox = inbox
        self._done = dict.fromkeys(children, 0)

    def hear(self) -> tuple[Child, dict[str, Any]]:
        """What one of them says next."""
        try:
            child, line = self._inbox.get(timeout=PATIENCE)
        except queue.Empty:
            raise BrokenDown(f"a child is silent for {PATIENCE:.0f} s") from None
        return child, child.understand(line)

    def start(self) -> None:
        """Wait until all are ready, then let them work."""
        for _ in self.children:
            self.hear()
        for child in self.children:
            child.tell()

    def progress(self) -> tuple[int, float]:
        """How many jobs they have done together when the next of them says so, and when that was."""
        child, facts = self.hear()
        self._done[child] = int(facts["done"])
        return sum(self._done.values()), float(facts["at"])

    def stop(self) -> list[float]:
        """Have all stop in good order; the waits they have measured."""
        for child in self.children:
            child.tell()
        waits = list[float]()
        ended = 0
        while ended < len(self.children):
            _, facts = self.hear()
            if "waits" in facts:
                waits += facts["waits"]
                ended += 1
        for child in self.children:
            child.leave()
        return waits


@contextmanager
def crew(engine: EngineName, side: SideName, store: str, threads: int = 1, processes: int = 1) -> Iterator[Crew]:
    """Run workers; they are gone when this is left."""
    inbox: queue.Queue[tuple[Child, str]] = queue.Queue()
    with ExitStack() as stack:
        children = [_started(stack, inbox, engine, side, "worker", [store, str(threads)]) for _ in range(processes)]
        yield Crew(children, inbox)


def ask(engine: EngineName, side: SideName, store: str, *words: object) -> Any:
    """Run a client and return its answer."""
    return ask_and_time(engine, side, store, *words)[0]


def ask_and_time(engine: EngineName, side: SideName, store: str, *words: object) -> tuple[Any, float]:
    """Run a client; its answer, and the seconds of processor time it took since it said that it begins, if it did."""
    inbox: queue.Queue[tuple[Child, str]] = queue.Queue()
    with ExitStack() as stack:
        child = _started(stack, inbox, engine, side, "client", [store, *map(str, words)])
        client, before = Crew([child], inbox), 0.0
        while "answer" not in (facts := client.hear()[1]):
            before = child.cpu()
        spent = child.cpu() - before
        child.leave()
        return facts["answer"], spent


def _started(
    stack: ExitStack,
    inbox: queue.Queue[tuple[Child, str]],
    engine: EngineName,
    side: SideName,
    role: str,
    words: list[str],
) -> Child:
    """A new process that is gone when the stack is left."""
    command, environment = program(engine, side, role)
    process = subprocess.Popen(
        [*command, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=os.environ.get(TREE, ROOT),
        env=os.environ | environment,
    )
    child = Child(process, " ".join([side, role, *words[1:]]), inbox)
    stack.callback(child.end)
    return child
