"""Tables that fit the terminal: whole columns are left out before a word is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Column, Table

from headrace.cli.output.text import Text

__all__ = ["Fitted"]

COLUMN_GAP_CHARACTERS = 2
"""Between two columns; rich counts one for the last column too."""
MIN_LAST_CHARACTERS, MIN_WRAPPED_CHARACTERS = 16, 28
"""The last column, which gives way, wants at least this: a bar of progress; or some words, if it wraps them."""
MIN_COLUMN_CHARACTERS = 12
"""No column that is kept is cut to less than this."""


class Fitted:
    """A table that is laid out when it is printed, for the width of the output.

    On a narrow terminal columns without a word in them go first, then the spare ones in the order named. Of the others
    the last gives way (or wraps its words), and only a name longer than any screen has room for is cut.
    """

    def __init__(self, table: Table, spare: Sequence[str] = (), *, wrap: bool = False) -> None:
        self._table, self._spare = table, spare
        self._last = MIN_WRAPPED_CHARACTERS if wrap else MIN_LAST_CHARACTERS
        if wrap:
            table.columns[-1].no_wrap, table.columns[-1].overflow = False, "fold"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield self.at(options.max_width)

    def at(self, width: int) -> Table:
        """Return the table for a terminal of so many columns."""
        columns = list(self._table.columns)
        empty = [column for column in columns if column.header and not any(map(_long, column.cells))]
        named = {str(column.header): column for column in columns}
        for column in (*empty, *(named[name] for name in self._spare)):
            if len(columns) == 2 or _needed(columns, self._last) <= width:
                break
            columns = [one for one in columns if one is not column]
        wide = [_wide(column) for column in columns]
        room = width - COLUMN_GAP_CHARACTERS * len(wide)
        wide[-1] = min(wide[-1], max(room - sum(wide[:-1]), MIN_LAST_CHARACTERS))
        while sum(wide) > room and max(wide) > MIN_COLUMN_CHARACTERS:
            wide[wide.index(max(wide))] -= 1
        return _laid_out(self._table, columns, wide)


def _laid_out(table: Table, columns: Sequence[Column], wide: Sequence[int]) -> Table:
    """Return a table of these columns, with every width set: of those left open rich would take from all."""
    made = copy(table)
    made.columns, made.rows = [], []
    for column, width in zip(columns, wide, strict=True):
        shared = {name: getattr(column, name) for name in ("justify", "overflow", "no_wrap", "style", "header_style")}
        made.add_column(column.header, width=width, **shared)
    for cells in zip(*(column.cells for column in columns), strict=True):
        made.add_row(*cells)
    return made


def _long(cell: RenderableType) -> int:
    return (cell if isinstance(cell, Text) else Text(str(cell))).cell_len


def _wide(column: Column) -> int:
    return max([_long(column.header), *map(_long, column.cells)])


def _needed(columns: Sequence[Column], least: int) -> int:
    *kept, last = columns
    return sum(map(_wide, kept)) + COLUMN_GAP_CHARACTERS * len(columns) + min(_wide(last), least)
