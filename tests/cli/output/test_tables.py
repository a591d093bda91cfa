"""Tables on terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from headrace.cli.output.jobs import table
from headrace.cli.output.tables import Fitted

NAMES = ("id", "task", "none", "queue", "status", "")


def printed(width: int, *rows: tuple[str, ...], wrap: bool = False) -> list[str]:
    made = table(*NAMES)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    out = Console(file=io.StringIO(), width=width)
    out.print(Fitted(made, ("queue",), wrap=wrap))
    assert isinstance(out.file, io.StringIO)
    lines = out.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return [" ".join(line.split()) for line in lines]


ROW = ("deadbeef", "resize", "", "images", "failed (retries exhausted)", "ValueError: boom, and again boom")


def test_with_room_for_all_all_is_shown() -> None:
    assert printed(120, ROW) == ["id task none queue status", " ".join(cell for cell in ROW if cell)]


def test_a_column_without_a_word_goes_first_and_a_spare_one_next() -> None:
    assert printed(74, ROW)[0] == "id task queue status"
    assert printed(66, ROW)[0] == "id task status"
    assert printed(66, ROW)[1].startswith("deadbeef resize failed (retries exhausted) ValueError: ")


def test_the_last_column_is_cut_or_wraps_its_words() -> None:
    assert printed(66, ROW)[1].endswith("…")
    wrapped = printed(66, ROW, wrap=True)
    assert "…" not in " ".join(wrapped)
    assert " ".join(wrapped[1:]).endswith("ValueError: boom, and again boom")


@pytest.mark.parametrize("width", [1, 10, 30, 80])
def test_a_table_without_rows_is_its_header(width: int) -> None:
    assert len(printed(width)) == 1


def test_only_a_name_too_long_for_the_screen_is_cut() -> None:
    shown = printed(80, ("deadbeef", "t" * 90, "", "images", "queued", "{}"))[1]
    assert shown.startswith("deadbeef ttt")
    assert shown.endswith("… queued {}")
