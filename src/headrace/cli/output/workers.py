"""Workers that are gone, as tables and texts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType

from headrace.cli.output.jobs import status_text, table
from headrace.cli.output.tables import Fitted
from headrace.cli.output.text import Text
from headrace.cli.output.words import ago, moment, short, span
from headrace.core.explain.explanation import many
from headrace.core.job import Job
from headrace.core.lifecycle.departure import How
from headrace.engine import GoneWorker

__all__ = ["gone_worker_view", "gone_workers_view"]

_QUIET = frozenset({How.STOPPED, How.REPLACED})


def gone_workers_view(found: Sequence[GoneWorker], now: datetime) -> Fitted:
    """Return workers that are gone: since when, how it was known, and how many jobs each held."""
    made = table(
        "worker", "host", "pid", "gone", "how it was known", "held", "done", "ran", right=("pid", "held", "done")
    )
    for one in found:
        info, left = one.row.info, one.departure
        here = info.name is None  # else only the worker itself knows its host
        made.add_row(
            Text(short(info.id) if here else info.shown, "cyan"),
            Text(info.host if here else "–"),
            str(info.pid) if here else "–",
            ago(left.at, now),
            Text(left.told, "dim" if left.how in _QUIET else "red"),
            Text(str(one.row.holds), "red" if one.row.holds else ""),
            str(one.row.beat.done),
            span((left.at - info.started_at).total_seconds()),
        )
    return Fitted(made, ("ran", "done", "pid", "host"), wrap=True)


def gone_worker_view(one: GoneWorker, jobs: Sequence[Job | None], now: datetime) -> RenderableType:
    """Return one worker that is gone, and what became of the jobs that it held."""
    left, row = one.departure, one.row
    by = "" if left.by is None else f", found by {left.by}"
    ran = span((left.at - row.info.started_at).total_seconds())
    last = f"last heard {ago(row.beat_at, now)}; it ran for {ran}, and finished {many(row.beat.done, 'attempt')}"
    head = [
        Text(row.info.described, "bold"),
        Text(f"gone {ago(left.at, now)} ({moment(left.at)}): {left.told}{by}"),
        Text(last, "dim"),
    ]
    if not row.holds:
        return Group(*head, Text("it held no jobs", "dim"))
    made = table("job", "task", "now")
    for id, job in zip(one.lost, jobs, strict=True):
        if job is None:
            made.add_row(Text(str(id), "cyan"), Text("–"), Text("no longer kept", "dim"))
        else:
            made.add_row(Text(str(id), "cyan"), Text(job.task), status_text(job))
    more = row.holds - len(one.lost)
    said = f"it held {many(row.holds, 'job')}" + (f"; the first {len(one.lost)} of them:" if more > 0 else ":")
    return Group(*head, Text(said), Fitted(made, ()))
