"""A batch for people to look at: a bar of its jobs by how they ended, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from rich.console import Console, Group, RenderableType
from rich.live import Live

from headrace.cli.output.jobs import STYLES, grid, status_text, table
from headrace.cli.output.statuses import word_for
from headrace.cli.output.tables import Fitted
from headrace.cli.output.text import Text
from headrace.cli.output.words import ago, moment, span
from headrace.core.batch import Batch, BatchCallback, is_over, may_miss_some
from headrace.core.job import Job
from headrace.core.status import Status

__all__ = ["batch_view", "batches_view", "moving_bar", "sentence"]

BAR_CHARACTERS = 40
ENDS = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
DONE, LEFT = "━", "┄"
_NUMBERS = ("jobs", "completed", "failed", "cancelled", "live")


def _counts(record: Batch) -> dict[Status, int]:
    tally = record.tally
    return dict(zip(ENDS, (tally.completed, tally.failed, tally.cancelled), strict=True))


def sentence(record: Batch) -> str:
    """Return the state of the batch, on one line."""
    tally = record.tally
    ends = ", ".join(f"{count:,} {word_for(status)}" for status, count in _counts(record).items() if count)
    words = f"{tally.ended:,} of {tally.total:,} ended" + (f": {ends}" if ends else "")
    return f"{words} · {_state(record)}"


def _state(record: Batch) -> str:
    """Return the state: a batch that was once seen to end is live again while a job of it is retried."""
    if not record.sealed:
        return "open"
    word = "ended" if is_over(record) else "live"
    if record.cancelled_at is not None:
        return f"{word}, cancelled"
    return f"{word}, abandoned" if record.abandoned else word


def bar(record: Batch, width: int = BAR_CHARACTERS) -> Text:
    """Return its jobs as a bar: how many ended in which way, and how many are left; everything there is gets a cell."""
    parts = [(count, DONE, STYLES[status]) for status, count in _counts(record).items() if count]
    if left := record.tally.live or not record.sealed:
        parts.append((int(left), LEFT, "dim"))
    total = max(sum(count for count, _, _ in parts), 1)
    cells = [1 + int(count / total * (width - len(parts))) for count, _, _ in parts]
    if cells:
        cells[cells.index(max(cells))] += width - sum(cells)  # what the rounding left
    text = Text.assemble(*((sign * size, style) for size, (_, sign, style) in zip(cells, parts, strict=True)))
    return text.append(f" {100 * record.tally.ended // total:3d} %" if parts else "no jobs")


def batch_view(record: Batch, follow: Mapping[UUID, Job], now: datetime) -> RenderableType:
    """Return everything about one batch; ``follow`` are the jobs that were submitted at its end."""
    tally, facts = record.tally, grid()
    head = Text.assemble(("batch", "bold"), f"  {_state(record)}  {record.id}")
    counts = Text(f"{tally.total:,} in all")
    for status, count in _counts(record).items():
        if count:
            counts.append(f", {count:,} ").append(word_for(status), STYLES[status])
    if tally.live:
        counts.append(f", {tally.live:,} live")
    rows: list[tuple[str, str | Text]] = [("jobs", counts)]
    if record.cancelled_at is not None:
        by = "" if record.cancelled_by is None else f" by {record.cancelled_by}"
        when = f"{moment(record.cancelled_at)} ({ago(record.cancelled_at, now)}){by}"
        rows.append(("cancelled", f"{when}: it takes no more jobs"))
    if record.abandoned:
        rows.append(("abandoned", "its submitter fell silent before all of its jobs were there: some may be missing"))
    elif not record.sealed:
        rows.append(("open", f"jobs are being added, the last {ago(record.touched_at, now)}; it does not end before"))
    rows.append(("created", f"{moment(record.created_at)} ({ago(record.created_at, now)})"))
    if record.ended_at is not None:
        took = span((record.ended_at - record.created_at).total_seconds())
        again = "" if is_over(record) else "; a job of it was retried since"
        rows.append(("ended", f"{moment(record.ended_at)} ({ago(record.ended_at, now)}), after {took}{again}"))
    for name, call in (("on complete", record.on_complete), ("on failure", record.on_failure)):
        if call is not None:
            rows.append((name, _follows(record, call, follow.get(call.id))))
    for name, said in rows:
        facts.add_row(name, said if isinstance(said, Text) else Text(said))
    return Group(head, bar(record), Text(), facts)


def batches_view(records: Sequence[Batch], now: datetime) -> Fitted:
    """Return batches with their progress."""
    made = table("batch", "state", *_NUMBERS, "created", "took", right=_NUMBERS)
    for record in records:
        over = is_over(record)
        ended = record.ended_at if over else None
        made.add_row(
            Text(str(record.id), "cyan"),
            Text(_state(record), "red" if may_miss_some(record) else "dim" if over else ""),
            f"{record.tally.total:,}",
            *(Text(f"{count:,}" if count else "", STYLES[status]) for status, count in _counts(record).items()),
            f"{record.tally.live:,}" if record.tally.live else "",
            ago(record.created_at, now),
            "" if ended is None else span((ended - record.created_at).total_seconds()),
        )
    return Fitted(made, ("live", "created", "took", "cancelled"))


def _follows(record: Batch, call: BatchCallback, job: Job | None) -> Text:
    text = Text.assemble((call.spec.task, "bold"))
    if job is not None:
        return text.append("  ").append(status_text(job)).append(f"  {job.id}", "cyan")
    if not record.settled:
        when = "if not all of its jobs complete" if call is record.on_failure else "when it has ended"
        return text.append(f"  {when}", "dim")
    return text.append("  pruned" if call is record.on_complete else "  was not needed, or is pruned", "dim")


@contextmanager
def moving_bar(console: Console) -> Iterator[Callable[[Batch], None]]:
    """Return a bar that moves while the batch is shown, and stays when it has ended."""
    with Live(console=console, auto_refresh=False) as live:

        def see(record: Batch) -> None:
            live.update(Group(bar(record), Text(sentence(record), "dim")), refresh=True)

        yield see
