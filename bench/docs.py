"""The page of the documentation that shows the figures: sections that a run writes anew, between marks."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from bench.programs import ROOT

__all__ = ["IMAGES", "PAGE", "today", "write"]

PAGE = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"


def write(page: Path, section: str, lines: Iterable[str]) -> None:
    """Put these lines between the marks of a section.

    :raises ValueError: the page has no such section
    """
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    whole = page.read_text(encoding="utf-8")
    before, found, rest = whole.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page.name} has no section {section!r}")
    page.write_text("\n".join([f"{before}{begin}", *lines, f"{end}{after}"]), encoding="utf-8")


def today() -> str:
    """The line that says when."""
    return f"Measured on {time.strftime('%Y-%m-%d', time.gmtime())}:"
