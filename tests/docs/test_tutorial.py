"""The tutorial as a reader follows it: an empty folder, a shell, and terminals that run beside it.

The info string of a block says where it is typed: ``main`` is a shell, in which one command follows the other; in any
other terminal a command keeps running, and a later one there begins after Ctrl-C. What is shown beneath a command is
what it prints, but for the width of columns; ``…`` stands for what differs. Three things are other than on the page:
the environment is that of the tests (``console install`` is not typed), ports are free ones, and the PostgreSQL is one
of the tests.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headrace.core.times import duration
from tests.cli.patience import until_sync
from tests.docs.pages import ROOT
from tests.docs.test_deployments import typed
from tests.docs.test_hub_guide import environment
from tests.support.servers.postgres import shared

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the tutorial is for a POSIX shell"),
    pytest.mark.timeout(240),
]

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ([^\n`]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
"""Kind, info, body."""
PORTS = ("8000", "8470", "9000", "9100")
DATABASE = "postgresql://pictures@localhost/pictures"
MARK = "<<done>>"


def commands(body: str) -> Iterator[tuple[str, str]]:
    """Each command of a block, and what is shown beneath it."""
    for part in ("\n" + body).split("\n$ ")[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown.strip()


def is_as_shown(shown: str, said: str) -> bool:
    """Whether this was printed; columns may be wider or narrower than on the page."""
    first, *parts = _narrow(shown).split("…")
    text = _narrow(said)
    if not parts or not text.startswith(first):
        return text == first
    at = len(first)
    for part in parts[:-1]:  # not a pattern: one with many gaps takes for ever to find that a long text does not fit
        at = text.find(part, at) + len(part)
        if at < len(part):
            return False
    return text.endswith(parts[-1]) and len(text) - len(parts[-1]) >= at


def _narrow(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


class Shell:
    """The reader's main terminal: one shell, to which one command after the other is typed."""

    def __init__(self, folder: Path) -> None:
        self._said = folder.with_suffix(".main")
        self._file = self._said.open("w")
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment(COLUMNS="120"),
            stdin=subprocess.PIPE,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def type(self, command: str, shown: str) -> None:
        """Run it; it ends well, and prints what is shown."""
        assert self._process.stdin is not None
        before = self._said.read_text()
        self._process.stdin.write(f"{command}\necho {shlex.quote(MARK)} $?\n")
        self._process.stdin.flush()
        until_sync(
            lambda: MARK in self._said.read_text()[len(before) :], what=lambda: f"{command}\n{self._said.read_text()}"
        )
        until_sync(lambda: self._said.read_text().endswith("\n"))
        said, _, code = self._said.read_text()[len(before) :].partition(MARK)
        assert (int(code), is_as_shown(shown, said)) == (0, True), f"$ {command}\nshown: {shown}\nsaid:  {said.strip()}"

    def close(self) -> None:
        """End the shell and what it started in the background."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._file.close()


class Terminal:
    """A terminal in which a command keeps running."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._said = folder, folder.with_suffix(f".{name}")
        self._exports: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def type(self, command: str, shown: str) -> None:
        """Stop what runs here, run this, and wait until it prints what is shown."""
        self.close()
        if command.startswith("export "):
            self._exports.append(command)
            return
        script = "\n".join([*self._exports, f"exec {command}"])
        with self._said.open("w") as file:
            self._process = subprocess.Popen(
                ["bash", "-c", script],
                cwd=self._folder,
                env=environment(COLUMNS="120"),
                stdout=file,
                stderr=file,
                text=True,
            )
        until_sync(
            lambda: is_as_shown(shown, self._said.read_text()), what=lambda: f"{command}\n{self._said.read_text()}"
        )

    def close(self) -> None:
        """Ctrl-C; it ends in good order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            assert self._process.wait(30) in (0, 130, -signal.SIGINT), self._said.read_text()
            self._process = None


def free_ports() -> dict[str, str]:
    """A free port for each port of the page."""
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in PORTS]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return {port: str(one.getsockname()[1]) for port, one in zip(PORTS, found, strict=True)}


@contextmanager
def terminals(folder: Path) -> Iterator[dict[str, Shell | Terminal]]:
    with ExitStack() as stack:
        found: dict[str, Shell | Terminal] = {"main": Shell(folder)}
        found |= {name: Terminal(folder, name) for name in ("hub", "web", "worker")}
        for one in found.values():
            stack.callback(one.close)
        yield found


def test_the_tutorial_works_as_it_stands(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    ports, database = free_ports(), shared().url(shared().create_database())

    def here(text: str) -> str:
        text = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda seen: ports[seen[0]], text)
        return text.replace(DATABASE, database)

    typed_in = set[str]()
    with terminals(folder) as found:
        for kind, info, body in BLOCKS:
            if info.startswith("file="):
                (folder / info.removeprefix("file=")).write_text(here(body), encoding="utf-8")
            elif kind == "console" and info != "install":
                for command, shown in commands(here(body)):
                    for name in info.split():
                        found[name].type(command, shown)
                        typed_in.add(name)
    assert typed_in == set(found)


def test_what_is_not_as_shown_is_found() -> None:
    assert is_as_shown("a  …b\n… c", "a xx b\nyy   c\n")
    assert is_as_shown("…", "anything")
    for shown in ("a", "b …", "… b", "x … c", "a … d … c", "a xx b yy c …c"):
        assert not is_as_shown(shown, "a xx b yy c"), shown


# -- the units of its last step


def units() -> dict[str, configparser.SectionProxy]:
    """The service sections of the units, by name."""
    found = {}
    for _, info, body in BLOCKS:
        if info.endswith(".service"):
            parser = configparser.ConfigParser(interpolation=None)
            parser.optionxform = str  # type: ignore[method-assign, assignment]  # names have capitals
            parser.read_string(body)
            found[info.removeprefix("file=")] = parser["Service"]
    return found


def test_the_units_start_what_the_reader_has_typed() -> None:
    """Each command is one of ours, or the one that was typed before."""
    found = units()
    assert sorted(found) == ["pictures-hub.service", "pictures-web.service", "pictures-worker.service"]
    for unit in found.values():
        program, *words = shlex.split(unit["ExecStart"])
        if Path(program).name == "headrace":
            assert duration(f"{unit['TimeoutStopSec']}s") >= typed(words)["grace"] + 15
        else:
            assert f"$ {Path(program).name} {' '.join(words[:3])}\n" in PAGE
        assert unit["EnvironmentFile"] == "/etc/pictures.env"
    assert shlex.split(found["pictures-worker.service"]["ExecStartPre"])[1:] == ["migrate"]
