"""Jobs for people: tables, the panel of one job, its timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table

from headrace.cli.output import timeline
from headrace.cli.output.statuses import counts_of, word_of
from headrace.cli.output.tables import Fitted
from headrace.cli.output.text import Text
from headrace.cli.output.words import ago, clock, compact, counted, cut, fixed_zone, moment, short, span
from headrace.core.attempt import History
from headrace.core.codec.stand_in import guarded, is_stand_in
from headrace.core.job import Job, json_or_text
from headrace.core.lifecycle.decision import held_until
from headrace.core.lifecycle.liveness import told_silence
from headrace.core.lifecycle.suspects import told_suspect
from headrace.core.status import Status

__all__ = [
    "STYLES",
    "counts_text",
    "grid",
    "id_text",
    "job_table",
    "job_view",
    "progress_bar",
    "remark",
    "status_text",
    "table",
]

STYLES = {
    Status.PENDING: "dim",
    Status.WAITING: "dim cyan",
    Status.SCHEDULED: "blue",
    Status.QUEUED: "cyan",
    Status.ASSIGNED: "yellow",
    Status.ACCEPTED: "yellow",
    Status.RUNNING: "bold yellow",
    Status.RETRYING: "magenta",
    Status.COMPLETED: "green",
    Status.FAILED: "bold red",
    Status.CANCELLED: "dim yellow",
}


def table(*columns: str, right: Sequence[str] = (), title: str | None = None) -> Table:
    """Return an empty table in the house style; the named columns are numbers."""
    made = Table(box=None, header_style="bold dim", pad_edge=False, title=title, title_justify="left")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="ellipsis", no_wrap=True)
    return made


def grid() -> Table:
    """Return a grid: names on the left, values on the right."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    return made


def status_text(job: Job) -> Text:
    """Return the status, and why it ended so."""
    text = Text(word_of(job), STYLES[job.status])
    if job.reason:
        text.append(f" ({job.reason.value.replace('_', ' ')})", "dim")
    elif job.cancel_requested_at and not job.ended:
        text.append(" (cancelling)", "dim")
    return text


def counts_text(counts: Mapping[Status, int]) -> Text:
    """Return how many there are in each status; empty if there are none."""
    text = Text()
    for word, status, count in counts_of(counts):
        text.append(f"{', ' if text else ''}{count} ", "").append(word, STYLES[status])
    return text


def progress_bar(percent: float, width: int = 20, style: str = "yellow") -> Text:
    """Return a bar of blocks and the number."""
    full = round(min(max(percent, 0.0), 100.0) / 100 * width)
    return Text.assemble(("━" * full, style), ("━" * (width - full), "dim"), (f" {percent:3.0f} %", style))


def id_text(job: Job, console: Console) -> Text:
    """Return the whole id for programs, its distinct end for people."""
    return Text(short(job.id) if console.is_terminal else str(job.id), "cyan")


def remark(job: Job, now: datetime, limit: int = 60) -> Text:
    """Return the one remark about a job that matters besides its status."""
    if is_stand_in(job) and job.error:
        return Text(cut(f"{job.error.type}: {job.error.message}", limit), "bold red")
    if job.status in (Status.SCHEDULED, Status.RETRYING):
        text = Text(f"due {ago(job.available_at, now)}", "dim")
        if job.error:
            text.append(f" · {cut(f'{job.error.type}: {job.error.message}', limit)}", "dim")
        return text
    if job.status is Status.WAITING:
        return Text(f"for {counted(len(job.after), 'job')}", "dim")
    if job.held and job.progress:
        text = progress_bar(job.progress.percent, 10)
        return text.append(f" {cut(job.progress.message, limit)}", "dim") if job.progress.message else text
    if job.error and job.status is not Status.COMPLETED:
        return Text(cut(f"{job.error.type}: {job.error.message}", limit), "red")
    if job.status is Status.COMPLETED:
        return Text("" if job.result_text in (None, "null") else f"→ {cut(job.result_text or '', limit)}", "dim")
    return Text(cut(job.payload_text, limit), "dim")


def job_table(jobs: Sequence[Job], now: datetime, console: Console) -> Fitted:
    """Return many jobs, a line each."""
    made = table("id", "task", "queue", "status", "attempt", "age", "", right=("attempt", "age"))

    def row(job: Job) -> list[Text]:
        age = Text(span((now - job.created_at).total_seconds()))
        band = () if job.priority_band == "normal" else ((f" {job.priority_band}", "dim"),)
        names = [id_text(job, console), Text(job.task), Text.assemble(job.queue, *band)]
        return [*names, status_text(job), Text(f"{job.attempt}"), age, remark(job, now)]

    for job in jobs:
        made.add_row(*guarded(row, job))
    return Fitted(made, ("attempt", "queue", "age"))


def job_view(
    job: Job, history: History, now: datetime, console: Console, silent_since: datetime | None = None
) -> RenderableType:
    """Return everything about one job: a head, facts, timeline, last traceback, whether its worker is silent."""
    head = Text.assemble((job.task, "bold"), "  ", status_text(job), f"  {job.id}")
    parts: list[RenderableType] = [_facts(job, now, silent_since)]
    if job.payload_text != "{}":
        parts.append(_block("payload", compact(json_or_text(job.payload_text))))
    if job.result_text is not None:
        parts.append(_block("result", compact(json_or_text(job.result_text))))
    if job.error and job.status is not Status.COMPLETED:
        parts.append(_block("error", job.error.traceback or f"{job.error.type}: {job.error.message}", "red"))
    view: RenderableType = Group(*parts)
    if console.is_terminal:
        view = Panel(view, title=head, title_align="left", border_style="dim", padding=(1, 2))
        return Group(view, timeline_view(job, history, now, console.width))
    return Group(head, view, timeline_view(job, history, now, min(console.width, 140)))


def _block(name: str, text: str, style: str = "") -> RenderableType:
    made = grid()
    made.add_row(f"{name:<9}", Text(text.rstrip(), style, lines=True))
    return made


def _asked(job: Job) -> str:
    """Return what was requested, where something else holds now."""
    asked = [f"queue {job.asked_queue}"] if job.queue != job.asked_queue else []
    asked += [f"priority {job.asked_priority}"] if job.priority != job.asked_priority else []
    return f" (asked for {', '.join(asked)})" if asked else ""


def _told_key(job: Job) -> str | None:
    until = held_until(job)
    if job.dedup is None or until is None or (job.ended and job.status is not Status.COMPLETED):
        return job.dedup
    return f"{job.dedup} (held until {moment(until)}, also if completed)"


def _facts(job: Job, now: datetime, silent_since: datetime | None) -> RenderableType:
    made = grid()
    attempts = f"{job.charged} of {job.max_attempts} charged"
    if job.attempt != job.charged:
        attempts += f", {job.attempt} in all"
    if job.redrives:
        attempts += f", redriven {job.redrives}×"
    facts: list[tuple[str, str | Text]] = [
        ("queue", f"{job.queue} · priority {job.priority} · {job.priority_band}{_asked(job)}"),
        ("created", f"{moment(job.created_at)} ({ago(job.created_at, now)})"),
        ("attempts", attempts),
        ("timeout", span(job.timeout) if job.timeout is not None else "none"),
    ]
    if (heartbeat := job.heartbeat or job.remote_heartbeat) is not None:
        facts.append(("heartbeat", span(heartbeat) + ("" if job.heartbeat else ", of workers behind a hub")))
    if job.progress:
        bar = progress_bar(job.progress.percent, 30, STYLES[job.status].split()[-1])
        words = [word for word in (job.progress.step, job.progress.message) if word]
        facts.append(("progress", bar.append("  " + " · ".join(words)) if words else bar))
        if (done_at := job.progress.estimated_completion) and job.held:
            facts.append(("done by", f"{moment(done_at)}, it estimates"))
        if job.progress.details:
            facts.append(("details", compact(job.progress.details)))
    silent = f" ({told_silence(silent_since, now)})" if silent_since else ""
    optional: dict[str, str | Text | None] = {
        "failure": job.fingerprint,
        "suspect": told_suspect(job),
        "worker": Text.assemble(str(job.worker), (silent, "bold red")) if job.worker else None,
        "customer": job.customer,
        "tags": ", ".join(job.tags),
        "metadata": compact(job.metadata) if job.metadata else None,
        "dedup": _told_key(job),
        "schedule": job.spec.schedule,
        "not after": moment(job.not_after) if job.not_after else None,
        "parent": str(job.parent) if job.parent else None,
        "root": str(job.root) if job.root else None,
        "batch": str(job.batch) if job.batch else None,
        "rerun of": str(job.spec.rerun_of) if job.spec.rerun_of else None,
        "trace": ", ".join(f"{name}: {value}" for name, value in (job.trace or {}).items()),
        "requires": compact(job.requires) if job.requires else None,
    }
    facts += [(name, value) for name, value in optional.items() if value]
    for name, value in facts:
        made.add_row(f"{name:<9}", value if isinstance(value, Text) else Text(value))
    return made


def timeline_view(job: Job, history: History, now: datetime, columns: int) -> RenderableType:
    """Return the timeline, to scale."""
    picture = timeline.rows(job, history, now)
    start, end = timeline.extent(picture)
    labels, tooks = (
        max(len(text) for text in column) for column in zip(*((r.label, r.took) for r in picture), strict=True)
    )
    clocks = 12 if columns >= 70 else 0
    # One offset for all rows, named once: across a turn of the clocks they would look out of order.
    zone = fixed_zone(start)
    # Notes and picture share what is left of the line; a narrow terminal goes without the times of day.
    width = max(8, min(60, (columns - clocks - labels - tooks - 4) // 2))
    made = Table.grid(padding=(0, 1))
    for least in (clocks, labels, width, tooks):
        made.add_column(no_wrap=True, min_width=least, width=least)
    made.add_column(overflow="fold")
    for row in picture:
        bar = Text()
        for sign, style in timeline.draw(row, start, end, width):
            bar.append(sign, style)
        when = Text(clock(row.at, zone) if clocks else "", "dim")
        made.add_row(when, Text(row.label, row.style), bar, Text(row.took, "dim", justify="right"), Text(row.note))
    beside = f", times {zone}" if clocks else ""
    title = Text.assemble(("timeline", "bold"), (f"  {span((end - start).total_seconds())} in all{beside}", "dim"))
    return Group(Text(), title, made)
