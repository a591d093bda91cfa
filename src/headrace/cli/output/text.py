"""Texts and a console for rich that send a terminal no control characters but the styles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text as StyledText

from headrace.core.control_characters import printable

__all__ = ["PrintableConsole", "Text"]


class Text(StyledText):
    """A text with its control characters spelled out before it is measured.

    Newlines too, so that nothing in it looks like a line of ours; but where a text has ``lines``.
    """

    def __init__(self, text: str = "", *style: Any, lines: bool = False, **more: Any) -> None:
        super().__init__(printable(text, lines=lines), *style, **more)

    def append(self, text: StyledText | str, style: Any = None) -> Text:
        """Add a text."""
        super().append(printable(text) if isinstance(text, str) else text, style)
        return self

    @classmethod
    def assemble(cls, *parts: StyledText | str | tuple[str, Any], **how: Any) -> Text:
        """Return one text of several, with a style each."""
        made = cls(**how)
        for part in parts:
            made.append(*part) if isinstance(part, tuple) else made.append(part)
        return made

    def join(self, lines: Iterable[StyledText]) -> Text:
        """Return one text of several, with this one between them."""
        how: dict[str, Any] = {"justify": self.justify, "overflow": self.overflow, "no_wrap": self.no_wrap}
        made = Text("", self.style, **how)
        for number, one in enumerate(lines):
            made.append(self).append(one) if number else made.append(one)
        return made


class PrintableConsole(Console):
    """A console that spells out the control characters of whatever it is given."""

    def render_str(self, text: str, **how: Any) -> StyledText:
        """Return a text of a string, such as a cell of a table."""
        return super().render_str(printable(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is written, piece by piece."""
        # What others make of a text, such as a bar that moves, passes here only; the pieces that move it are no text.
        for one in super().render(renderable, options):
            plain = one.text if one.control else printable(one.text, lines=True)
            yield one if plain == one.text else Segment(plain, one.style)
