"""Makes the pictures of terminals in ``docs/images`` from what the commands really show; run by ``make docs``.

A picture is of one real run, so its times differ from run to run. To keep a picture from changing for no reason it is
made anew only if the modules that draw it have changed since (their fingerprint is in the file), or with ``--again``.
"""

from __future__ import annotations

import fcntl
import hashlib
import html
import io
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

HERE = Path(__file__).resolve().parent
IMAGES = HERE / "images"
CLI = HERE.parent / "src" / "headrace" / "cli"

DRAWN_BY = {
    "demo.svg": ("demo/app.py", "demo/scenario.py", "demo/screen.py"),
    "show.svg": ("demo/app.py", "output/jobs.py", "output/timeline.py"),
}
"""Each picture, and the modules that decide what is on it."""

WIDTHS = {"demo.svg": 80, "show.svg": 96}
LINES = 24

_DARK = ("484f58", "ff7b72", "3fb950", "d29922", "58a6ff", "bc8cff", "39c5cf", "b1bac4")
_BRIGHT = ("6e7681", "ffa198", "56d364", "e3b341", "79c0ff", "d2a8ff", "56d4dd", "f0f6fc")


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour)
    return red, green, blue


THEME = TerminalTheme(_rgb("161b22"), _rgb("c9d1d9"), [*map(_rgb, _DARK)], [*map(_rgb, _BRIGHT)])

# As rich's own, without the fonts that it would fetch from elsewhere: a picture needs nothing but itself.
FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<!-- Made by docs/pictures.py from the real output: `make docs`. {fingerprint} -->
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def fingerprint(name: str) -> str:
    """Of the modules that draw a picture."""
    sources = b"".join((CLI / module).read_bytes() for module in DRAWN_BY[name])
    return f"Sources: {hashlib.sha256(sources).hexdigest()[:16]}"


def stale(name: str) -> bool:
    """Whether a picture is missing, or was drawn by other code."""
    file = IMAGES / name
    return not file.exists() or fingerprint(name) not in file.read_text(encoding="utf-8")


def main() -> None:
    """Make the pictures that are out of date; with ``--again`` all."""
    wanted = [name for name in DRAWN_BY if "--again" in sys.argv[1:] or stale(name)]
    if not wanted:
        return
    url = ("--url", "sqlite:///demo.db")
    with TemporaryDirectory() as folder:
        played = typed(["headrace", "demo", "--once", *url], WIDTHS["demo.svg"], folder)
        listed = typed(["headrace", "jobs", "--task", "unsteady", *url], WIDTHS["show.svg"], folder)
        id = plain(listed).splitlines()[-1].split()[0]
        screens = {
            "demo.svg": max(frames(played), key=liveliness),
            "show.svg": typed(["headrace", "show", id, *url], WIDTHS["show.svg"], folder),
        }
    for name in wanted:
        (IMAGES / name).write_text(drawn(name, screens[name]), encoding="utf-8")


def typed(command: Sequence[str], columns: int, folder: str) -> str:
    """All that a command writes to a terminal that is so wide, in this folder."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = kept | {"PATH": path, "TZ": "UTC", "TERM": "xterm-256color", "COLORTERM": ""}
    with subprocess.Popen(list(command), stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=env) as child:
        os.close(slave)
        told = b""
        with suppress(OSError):  # how Linux says that nobody holds the other end any more
            while part := os.read(master, 65536):
                told += part
    os.close(master)
    text = told.decode().replace("\r\n", "\n")
    assert child.returncode == 0, text
    return text


def frames(text: str) -> list[str]:
    """The screens of a live display, one after the other."""
    parts = re.split(r"(?:\r|\x1b\[1A|\x1b\[2K|\x1b\[\?25[lh])+", text)
    return [part for part in parts if "what it shows" in part]


def liveliness(frame: str) -> int:
    """How much there is to see on a screen of the demo: different states, bars on their way, lines of what happened."""
    text = plain(frame)
    states = (
        "scheduled, due",
        "snoozed, due",
        "failed, next in",
        "runs",
        " running",
        "completed:",
        "retries exhausted",
    )
    moving = [int(found) for found in re.findall(r"(\d+) %", text)]
    return (
        2 * sum(state in text for state in states) + sum(0 < one < 100 for one in moving) + len(text.splitlines()) // 4
    )


def plain(text: str) -> str:
    """The text without its colours."""
    return Text.from_ansi(text).plain


def drawn(name: str, screen: str) -> str:
    """A screen as SVG."""
    console = Console(
        record=True,
        width=WIDTHS[name],
        file=io.StringIO(),
        force_terminal=True,
        color_system="standard",
        highlight=False,
    )
    console.print(Text.from_ansi(screen.strip("\n")), soft_wrap=True)
    title = f"headrace {name.removesuffix('.svg')}"
    code = FORMAT.replace("{fingerprint}", fingerprint(name))
    svg = console.export_svg(title=title, theme=THEME, code_format=code, unique_id=name.removesuffix(".svg"))
    return re.sub(r"[ \t]+$", "", _TEXT.sub(_words, svg), flags=re.MULTILINE)


_TEXT = re.compile(r'<text class="(\S+)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*)>([^<]*)</text>')
_PIECE = re.compile(r"([─━█░·])\1*|[^\s─━█░·]+(?:[\xa0 ][^\s─━█░·]+)*")
"""A line of one sign, or words with one space between them."""


def _words(found: re.Match[str]) -> str:
    """One text of a line as texts of its words, each at its place: not every viewer keeps spaces as wide as letters."""
    kind, left, top, length, more, text = found.groups()
    signs = html.unescape(text)
    cell = float(length) / max(len(signs), 1)
    made = []
    for word in _PIECE.finditer(signs):
        x, wide = float(left) + word.start() * cell, len(word[0]) * cell
        said = html.escape(word[0]).replace("\xa0", "&#160;")
        made.append(f'<text class="{kind}" x="{x:g}" y="{top}" textLength="{wide:g}"{more}>{said}</text>')
    return "".join(made)


if __name__ == "__main__":
    main()
