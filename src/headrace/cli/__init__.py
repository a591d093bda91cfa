"""The ``headrace`` command: everything an App can do, from a terminal or a script.

What it prints for programs goes to stdout, what it says to people goes to stderr. A command's module is imported when
the command is called, rich and the App when it needs them.
"""

from __future__ import annotations

from headrace.cli.root import cli, main

__all__ = ["cli", "main", "reference"]


def reference() -> str:
    """The whole command line as a page of Markdown: every command, argument and option."""
    from headrace.cli.manual import page

    return page()
