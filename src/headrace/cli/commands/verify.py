"""``verify``: compare what the store keeps twice, and say what does not agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from headrace.cli.exit_codes import DONE, FAILED
from headrace.cli.options import State, common
from headrace.cli.output.console import console, document, is_terminal
from headrace.cli.session import with_app

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headrace.app import App
    from headrace.core.stats.verification import Invariant, Verification

__all__ = ["verify"]


@click.command()
@common
def verify(state: State) -> int:
    """Compare the books with the jobs: what the store keeps twice must agree.

    Workers may go on meanwhile. It may look at every job, so on a large store it takes a while. Exit code 1 if anything
    does not agree.
    """

    async def work(app: App) -> Verification:
        with _progress() as each:
            return await app.store.verify(each=each)

    found = with_app(state, work)
    if state.json:
        document(found)
    else:
        out = console()
        out.print(_view(found), soft_wrap=not out.is_terminal)
    return DONE if found.ok else FAILED


@contextmanager
def _progress() -> Iterator[Callable[[Invariant], object]]:
    """Show a bar that moves with each invariant, for a person who waits."""
    if not is_terminal(stderr=True):
        yield lambda book: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from headrace.core.stats.verification import BOOKS

    names = [*BOOKS, ""]
    columns = (TextColumn("comparing {task.description:<8}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(names[0], total=len(BOOKS))
        yield lambda book: bar.update(task, advance=1, description=names[names.index(book.name) + 1])


def _view(found: Verification) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    from headrace.cli.output.text import Text

    made = Table.grid(padding=(0, 2))
    for book in found.books:
        sign = Text("✗", "bold red") if book.wrong else Text("✓", "green")
        holds = (
            Text(book.holds) if not book.wrong else Text(f"{book.wrong} wrong: {book.holds} — but not here", "bold red")
        )
        made.add_row(Text.assemble(sign, f" {book.name}"), Text(f"{book.checked}"), holds)
        for finding in book.findings:
            made.add_row("", "", Text.assemble((_named(finding.about), "bold"), finding.what))
        if book.wrong > len(book.findings):
            made.add_row("", "", Text(f"and {book.wrong - len(book.findings)} more", "dim"))
    made.columns[0].no_wrap = made.columns[1].no_wrap = True
    made.columns[1].justify = "right"
    if found.ok:
        return Group(made, Text(), Text("all books agree with the jobs", "green"))
    return Group(
        made,
        Text(),
        Text(
            "The books do not agree with the jobs: this must never happen, unless somebody wrote to the store by hand,"
            " or its disk failed. Keep a copy of the store, and report it.",
            "bold red",
        ),
    )


def _named(about: str | None) -> str:
    """Return the subject of a mismatch; a job that is gone has only its order number left."""
    if about is None:
        return ""
    return f"order number {about[1:]}: " if about.startswith("#") else f"{about}: "
