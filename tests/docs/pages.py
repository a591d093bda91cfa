"""The documentation as data: its pages, their links and their examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
WRITTEN = [page for page in PAGES if "reference" not in page.parts]
"""What people wrote; the reference is made from the code and so knows everything by itself."""

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (?P<text>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block. ``run``: it is executed. ``file=NAME``: it is kept for the blocks after it."""

    kind: str
    run: bool
    file: str | None
    body: str
    line: int


def name(page: Path) -> str:
    """The page as its readers name it."""
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    for found in _FENCE.finditer(text):
        kind, *words = found["info"].split() or [""]
        file = next((word.removeprefix("file=") for word in words if word.startswith("file=")), None)
        yield Block(kind, "run" in words, file, found["body"], text.count("\n", 0, found.start()) + 1)


def prose(text: str) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", text)


def links(text: str) -> Iterator[str]:
    """Where a page points to within the project."""
    for found in _LINK.finditer(prose(text)):
        if "://" not in found["target"]:
            yield found["target"]


def anchors(text: str) -> set[str]:
    """What can stand after # in a link to this page, by the rule of the usual renderers."""
    found = set()
    for heading in _HEADING.finditer(prose(text)):
        kept = re.sub(r"[^\w\- ]", "", heading["text"].lower())
        found.add(kept.strip().replace(" ", "-"))
    return found
