"""The ``headrace`` command: everything an App can do, from a terminal or a script.

Begin with ``root``, which has the table of commands. Commands print data for programs to stdout and words for people to
stderr. The module of a command is imported when the command is called, rich and the App when it needs them. May import
all of headrace.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["main", "reference"]


def main() -> None:
    """Run the ``headrace`` command; an interrupt while it is being imported ends it at once."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not ignored, as in the background of a shell
    if ours:
        signal.signal(signal.SIGINT, _leave)
    from headrace.cli.root import main as run

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(128 + number)  # nothing is begun yet that would have to be ended


def reference() -> str:
    """Return the whole command line as a page of Markdown: every command, argument and option."""
    from headrace.cli.manual import page

    return page()
