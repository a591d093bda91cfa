"""A real terminal to type commands in: a pty of a given size, its keys, and what is to be seen on it."""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

__all__ = ["CTRL_C", "SIZES", "Screen", "Seen", "Size", "look", "look_at_fork"]

CTRL_C = "\x03"

Size = tuple[int, int]

SIZES: tuple[Size, ...] = ((80, 24), (120, 40))
"""Columns and lines: the smallest terminal that anybody has, and one of today."""

_MOVES = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])")

# In the session that was made for it the first terminal that is opened becomes its own, so Ctrl-C reaches it. A test
# that runs in the background of a script has SIGINT ignored, and hands that down: the child starts with the default.
_LAUNCH = """
import os, signal, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Screen:
    """What a terminal shows after some text: lines without colours, also those that have been scrolled away.

    Knows the moves that rich makes: up, to the start of the line, erase the line.
    """

    def __init__(self) -> None:
        self._rows: list[list[str]] = [[]]
        self._row, self._column = 0, 0

    @property
    def lines(self) -> list[str]:
        """Its lines from the first ever written."""
        return ["".join(row).rstrip() for row in self._rows]

    def write(self, text: str) -> Screen:
        """Show the text."""
        rest = text
        while rest:
            if move := _MOVES.match(rest):
                self._move(move[1], move[2])
                rest = rest[move.end() :]
            else:
                self._put(rest[0])
                rest = rest[1:]
        return self

    def _put(self, sign: str) -> None:
        if sign == "\n":
            self._row += 1
            if self._row == len(self._rows):
                self._rows.append([])
        elif sign == "\r":
            self._column = 0
        elif sign.isprintable():
            row = self._rows[self._row]
            row.extend(" " * (self._column + 1 - len(row)))
            row[self._column] = sign
            self._column += 1

    def _move(self, numbers: str, letter: str) -> None:
        if letter == "A":
            self._row = max(self._row - int(numbers or 1), 0)
        elif letter == "K":
            self._rows[self._row] = []


@dataclass
class Seen:
    """What was to be seen of a command, and how it ended."""

    code: int
    text: str = field(repr=False)
    """All that was written, moves and colours included."""
    took: float
    """Seconds from the last key pressed, or the start, to the end."""

    @property
    def lines(self) -> list[str]:
        """What stands on the screen in the end."""
        return Screen().write(self.text).lines

    @property
    def frames(self) -> list[list[str]]:
        """What stood on it whenever something was about to be drawn anew, and in the end."""
        screen, frames = Screen(), []
        for part in re.split(r"(?=(?:\x1b\[1A)?\x1b\[2K)", self.text):
            if not part.startswith(("\x1b[2K", "\x1b[1A")):
                frames.append(screen.write(part).lines)
                continue
            screen.write(part)
            if len(_MOVES.sub("", part)) > 1:
                frames.append(screen.lines)
        return frames

    def __str__(self) -> str:
        return "\n".join([f"exit code {self.code} after {self.took:.2f} s", *self.lines])


def look(
    command: Sequence[str],
    *,
    size: Size = SIZES[0],
    press: Sequence[tuple[str, str]] = (),
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    limit: float = 60.0,
) -> Seen:
    """Run a command on a terminal of its own until it ends.

    ``press`` are keys, each with the pattern that is waited for before it is pressed.
    """
    master, slave = os.openpty()
    _resize(slave, size)
    child = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _LAUNCH, *command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        cwd=cwd,
        env={**_environment(), **(env or {})},
    )
    os.close(slave)
    try:
        text, pressed = _read(master, press, limit)
        code = child.wait(limit)
    finally:
        os.close(master)
        if child.poll() is None:
            child.kill()
            child.wait()
    return Seen(code, text, time.monotonic() - pressed)


def look_at_fork(
    work: Callable[[], NoReturn], *, size: Size, press: Sequence[tuple[str, str]] = (), limit: float = 60.0
) -> Seen:
    """Like :func:`look`, for a fork of this process: what it has imported is not imported again. It has no threads."""
    master, slave = os.openpty()
    _resize(slave, size)
    pid = os.fork()
    if pid == 0:
        os.close(master)
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for stream in range(3):
            os.dup2(slave, stream)
        kept = _environment()
        os.environ.clear()
        os.environ.update(kept)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            work()
        except SystemExit as end:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code if isinstance(end.code, int) else 0)
        finally:
            os._exit(99)
    os.close(slave)
    try:
        text, pressed = _read(master, press, limit)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(master)
        _, status = os.waitpid(pid, 0)
    return Seen(os.waitstatus_to_exitcode(status), text, time.monotonic() - pressed)


def _environment() -> dict[str, str]:
    """What of the environment a command may see: nothing that chooses a store, a width or a colour."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "PYTEST_"))}
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        kept.pop(name, None)
    return {**kept, "TERM": "xterm-256color"}


def _resize(terminal: int, size: Size) -> None:
    columns, lines = size
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def _read(master: int, press: Sequence[tuple[str, str]], limit: float) -> tuple[str, float]:
    """Everything until the terminal is closed, and when the last key was pressed (or when it began)."""
    text, keys, pressed, heard = "", list(press), time.monotonic(), 0
    decoder, deadline = codecs.getincrementaldecoder("utf-8")("replace"), time.monotonic() + limit
    while True:
        left = deadline - time.monotonic()
        assert left > 0, f"not ended within {limit:g} s; waiting to press {keys}:\n{text[-4000:]}"
        if not select.select([master], [], [], left)[0]:
            continue
        part = b""
        with suppress(OSError):  # how Linux says that nobody holds the other end any more
            part = os.read(master, 65536)
        if not part:
            return text, pressed
        text += decoder.decode(part)
        while keys and re.search(keys[0][0], text[heard:]):
            os.write(master, keys.pop(0)[1].encode())
            heard, pressed = len(text), time.monotonic()
