"""The relatives of a job, for people: the jobs that it waits for, and its family as a tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from rich.console import Console, Group, RenderableType
from rich.tree import Tree

from headrace.cli.output.jobs import counts_text, grid, id_text, remark, status_text
from headrace.cli.output.text import Text
from headrace.cli.output.words import counted
from headrace.core.job import Job
from headrace.core.status import Status

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Relatives", "family_view", "relatives"]

MAX_MEMBERS = 1000
"""Maximum of a family that is read, the newest."""

MAX_SIBLINGS, MAX_SHOWN_JOBS = 8, 40
"""Maximum of drawn children of one job, and of drawn jobs in all; the rest is counted."""


class Relatives(NamedTuple):
    """The jobs around a job."""

    after: Sequence[Job | None] = ()
    """Those it waits for, in order; None is gone."""
    root: Job | None = None
    """Where its family began; None: with itself, or that is gone."""
    members: Sequence[Job] = ()
    """The descendants of the root, oldest first."""
    more: bool = False
    """Whether there are older ones, which were not read."""


async def relatives(app: App, job: Job) -> Relatives:
    """Read the relatives of a job."""
    after = await app.jobs.get_many(job.after)
    page = await app.jobs.list(root=job.root or job.id, limit=MAX_MEMBERS)
    [root] = await app.jobs.get_many([job.root]) if job.root else [None]
    return Relatives(after, root, page.items[::-1], page.cursor is not None)


def family_view(job: Job, around: Relatives, now: datetime, console: Console) -> Iterator[RenderableType]:
    """Return the jobs that it waits for, and the tree of its family; nothing where it is alone."""
    if job.after:
        yield _after_view(job, around.after, now, console)
    if around.members:
        yield Group(Text(), Text("family", "bold"), _tree(job, around, now, console))


def _label(job: Job, now: datetime, console: Console, mark: str = "") -> Text:
    said = remark(job, now, 40)
    parts = [Text(job.task, "bold"), status_text(job), id_text(job, console), *([said] if said else [])]
    return Text("  ", no_wrap=True, overflow="ellipsis").join(parts).append(mark, "bold")


# Whom it waits for


def _after_view(job: Job, after: Sequence[Job | None], now: datetime, console: Console) -> RenderableType:
    known = [one for one in after if one is not None]
    what = {"succeeded": "to succeed", "ended": "to end, however they do"}[job.spec.after_when]
    head = Text.assemble(("after", "bold"), (f"  {counted(len(job.after), 'job')}, {what}", "dim"))
    if job.spec.after_when == "succeeded":
        head.append(f"; else it {'is cancelled' if job.spec.on_parent_failure == 'cancel' else 'fails'}", "dim")
    # What is still in the way comes first.
    shown = sorted(known, key=lambda one: (one.ended, one.status is Status.COMPLETED))[:MAX_SIBLINGS]
    lines = grid()
    for one in shown:
        lines.add_row("", _label(one, now, console))
    if rest := len(known) - len(shown):
        lines.add_row("", _rest(rest, [one for one in known if one not in shown]))
    if gone := len(after) - len(known):
        lines.add_row("", Text(f"{counted(gone, 'job')} pruned", "dim"))
    return Group(Text(), head, lines)


def _rest(count: int, jobs: Sequence[Job]) -> Text:
    return Text.assemble((f"… {count:,} more: ", "dim"), counts_text(Counter(one.status for one in jobs)))


# The family


def _tree(job: Job, around: Relatives, now: datetime, console: Console) -> RenderableType:
    root = around.root or (None if job.root else job)
    top = job.root or job.id
    known = {one.id for one in around.members}
    children: dict[UUID, list[Job]] = {}
    for one in around.members:
        # Where the job between was pruned, or was not read, it hangs from the root.
        parent = one.parent if one.parent in known else top
        children.setdefault(parent or top, []).append(one)
    shown = _chosen(top, children, job)

    def mark(one: Job) -> str:
        return "  ←" if one.id == job.id and job.root else ""

    head = _label(root, now, console, mark(root)) if root else Text(f"{top}, which is gone", "dim")
    tree = Tree(head, guide_style="dim")
    grow = [(tree, top)]
    while grow:
        branch, id = grow.pop()
        mine = children.get(id, ())
        grow += [(branch.add(_label(one, now, console, mark(one))), one.id) for one in mine if one.id in shown]
        if hidden := [one for one in mine if one.id not in shown]:
            branch.add(_rest(len(hidden), hidden))
    if not around.more:
        return tree
    said = f"only the newest {MAX_MEMBERS:,} were looked at; headrace jobs --root {top} --all lists them all"
    return Group(tree, Text(said, "dim"))


def _chosen(top: UUID, children: dict[UUID, list[Job]], job: Job) -> set[UUID]:
    """Return the jobs to draw: level by level as there is room, and always those between the root and the job."""
    parents = {one.id: id for id, members in children.items() for one in members}
    shown, id = set[UUID](), job.id
    while id in parents:
        shown.add(id)
        id = parents[id]
    level = [top]
    while level:
        below = list[UUID]()
        for id in level:
            for one in children.get(id, ())[:MAX_SIBLINGS]:
                if len(shown) < MAX_SHOWN_JOBS:
                    shown.add(one.id)
            below += [one.id for one in children.get(id, ()) if one.id in shown]
        level = below
    return shown
