"""Tables of everything that is not a job: counts, queues, schedules, tasks, workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table

from headrace.cli.output.jobs import STYLES, counts_text, grid, table
from headrace.cli.output.statuses import counts_of
from headrace.cli.output.tables import Fitted
from headrace.cli.output.text import Text
from headrace.cli.output.words import ago, compact, moment, short, span
from headrace.cli.process.renewal import shown
from headrace.core.audit import Audited
from headrace.core.lifecycle.liveness import told_silence
from headrace.core.priority import band_of
from headrace.core.schedule.rules import Continuous
from headrace.core.times import MAX_CLOCK_ERROR_SECONDS, told_apart

if TYPE_CHECKING:
    from headrace.client.api.limits import LimitInfo
    from headrace.client.api.queues import QueueInfo
    from headrace.client.api.schedules import ScheduleInfo
    from headrace.client.api.stats import Stats
    from headrace.client.api.tasks import TaskInfo
    from headrace.core.limits.rate import Rate
    from headrace.core.query import Ledger
    from headrace.engine import WorkerRow

__all__ = [
    "limits_view",
    "queues_view",
    "rates_view",
    "schedule_view",
    "schedules_view",
    "stats_view",
    "tasks_view",
    "workers_view",
]


def stats_view(stats: Stats, now: datetime) -> RenderableType:
    """Return statuses with bars to compare them by, and the totals below."""
    made, counts = table("status", "jobs", "", right=("jobs",)), counts_of(stats.statuses)
    most = max([1, *(count for _, _, count in counts)])
    for word, status, count in counts:
        bar = "█" * max(1, round(count / most * 30))
        made.add_row(Text(word, STYLES[status]), str(count), Text(bar, STYLES[status]))
    books = stats.ledger
    facts = grid()
    facts.add_row("submitted", f"{books.accepted} = {books.live} live + {books.ended} ended + {books.pruned} pruned")
    if ended := _kinds(books):
        facts.add_row("", ended)
    if books.unaccounted:
        facts.add_row("", Text(f"{books.unaccounted} unaccounted for: run headrace doctor", "bold red"))
    facts.add_row("workers", _crew(stats, now))
    if own := counts_text(stats.own_statuses):
        facts.add_row("headrace's own", own)
    if stats.oldest_queued:
        facts.add_row("waiting", f"the oldest queued job for {span((now - stats.oldest_queued).total_seconds())}")
    head = made if made.row_count else Text("no jobs yet", "dim")
    return Group(head, Text(), facts, Text(), _metrics(stats))


def _metrics(stats: Stats) -> RenderableType:
    """Return the six metrics, by window."""
    windows = stats.metrics.windows
    made = table("of jobs", *windows, right=tuple(windows))
    for title, field, words in _SIX:
        values = [getattr(one, field) for one in windows.values()]
        made.add_row(title, *(Text("–", "dim") if value is None else words(value) for value in values))
    made.add_row("queue depth, now", *[""] * (len(windows) - 1), str(stats.metrics.queue_depth))
    return made


_SIX: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("average queue time", "average_queue_time", span),
    ("average processing time", "average_processing_time", span),
    ("success rate", "success_rate", "{:.1%}".format),
    ("retry rate", "retry_rate", "{:.1%}".format),
    ("worker utilisation", "worker_utilisation", "{:.1%}".format),
)


def _kinds(books: Ledger) -> str:
    """Return how all that ever ended did so, pruned or not."""
    counts = {"completed": books.completed, "failed": books.failed, "cancelled": books.cancelled}
    counts["pruned before that was counted"] = books.pruned_unknown
    ended = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"ever ended: {ended}" if ended else ""


def _crew(stats: Stats, now: datetime) -> Text:
    text = Text(f"{stats.workers_alive} alive")
    if stats.workers_silent and stats.silent_since is not None:
        last = ", the last" if stats.workers_silent > 1 else ""
        text.append(f", {stats.workers_silent}{last} {told_silence(stats.silent_since, now)}", "bold red")
    return text


def queues_view(queues: Sequence[QueueInfo], now: datetime) -> Fitted:
    """Return queues in the order workers serve them."""
    made = table("queue", "priority", "at once", "rates", "state", "oldest", "jobs", right=("priority", "at once"))
    for queue in queues:
        state = _paused(queue.paused, queue.paused_by)
        if queue.by_customer:
            state.append(", by customer", "dim")
        oldest = span((now - queue.oldest).total_seconds()) if queue.oldest else ""
        most, rates = _count(queue.max_concurrency), Text(", ".join(queue.rates) or "–")
        jobs = counts_text(queue.counts) or Text("" if queue.own_counts else "empty", "dim")
        if own := counts_text(queue.own_counts):
            jobs = Text.assemble(jobs, ", " if jobs else "", own, (" (headrace's own)", "dim"))
        made.add_row(Text(queue.name), str(queue.priority), most, rates, state, oldest, jobs)
    return Fitted(made, ("rates", "at once", "priority", "oldest"), wrap=True)


def _paused(paused: bool, by: str | None) -> Text:
    return Text(f"paused by {by}" if by else "paused", "yellow") if paused else Text("open", "green")


def limits_view(limits: Sequence[LimitInfo]) -> Fitted:
    """Return tasks with their limits, and the origin of these."""
    made = table("task", "at once", "per key", "rates", "set", right=("at once", "per key"))
    for one in limits:
        counts = (_count(one.max_concurrency), _count(one.max_per_key))
        made.add_row(Text(one.task), *counts, Text(", ".join(one.rates) or "–"), "live" if one.live else "in code")
    return Fitted(made)


def _count(most: int | None) -> str:
    return "–" if most is None else str(most)


def rates_view(rates: Mapping[str, Rate]) -> Fitted:
    """Return rates by name."""
    made = table("rate", "limit", "per", "kind", right=("limit",))
    for name, rate in rates.items():
        kind = f"{rate.kind}, by key" if rate.keyed else rate.kind
        made.add_row(Text(name), str(rate.limit), span(rate.per), kind)
    return Fitted(made)


def schedules_view(schedules: Sequence[ScheduleInfo], now: datetime) -> Fitted:
    """Return schedules with their state, and their last and next fire."""
    made = table("schedule", "rule", "task", "state", "next", "last", "skipped", "from", right=("skipped",))
    for one in schedules:
        made.add_row(
            Text(one.name),
            Text(str(one.rule)),
            Text(one.task),
            _schedule_state(one),
            _following(one, now),
            ago(one.last_fire, now) if one.last_fire else "–" if isinstance(one.rule, Continuous) else "never",
            str(one.skipped) if one.skipped else "",
            Text(one.source),
        )
    return Fitted(made, ("skipped", "from", "task", "last"))


def _schedule_state(one: ScheduleInfo) -> Text:
    return Text(one.state, {"active": "green", "paused": "yellow", "unserved": "red"}.get(one.state, "dim"))


def _following(one: ScheduleInfo, now: datetime) -> str:
    if one.waiting is not None:
        return "waits for its job"
    return ago(one.next_fire, now) if one.next_fire else "–"


def schedule_view(one: ScheduleInfo, now: datetime) -> Table:
    """Return everything about one schedule."""
    made = grid()
    rows: list[tuple[str, Text | str]] = [
        ("schedule", one.name),
        ("rule", str(one.rule)),
        ("state", _schedule_state(one)),
        ("task", f"{one.task} in queue {one.queue}, priority {one.priority} ({band_of(one.priority)})"),
        ("payload", compact(one.payload)),
        ("from", one.source),
        ("created", moment(one.created_at)),
    ]
    for name in ("catch_up", "overlap", "jitter", "start", "end", "cool_down"):
        value = getattr(one.rule, name, None)
        if value:
            said = moment(value) if isinstance(value, datetime) else value
            rows.append((name.replace("_", "-"), span(said) if isinstance(said, float) else str(said)))
    if one.next_fire:
        rows.append(("next", f"{moment(one.next_fire)} ({ago(one.next_fire, now)})"))
    if one.waiting:
        rows.append(("waiting", f"the fire of {moment(one.waiting)}, for the job of an earlier one to end"))
    if one.last_fire:
        rows.append(("last", f"{moment(one.last_fire)} ({ago(one.last_fire, now)}), job {one.last_job}"))
    rows.append(("skipped", str(one.skipped)))
    for name, text in rows:
        made.add_row(name, text if isinstance(text, Text) else Text(text))
    return made


def tasks_view(tasks: Sequence[TaskInfo]) -> Fitted:
    """Return tasks with their policy and parameters."""
    kept, paused = any(task.retention is not None for task in tasks), any(task.paused for task in tasks)
    more = (*(("kept",) if kept else ()), *(("state",) if paused else ()))
    made = table("task", "queue", "priority", "timeout", *more, "here", "parameters", right=("priority",))
    for task in tasks:
        properties = (task.schema or {}).get("properties", {})
        required = (task.schema or {}).get("required", [])
        parameters = ", ".join(name if name in required else f"{name}?" for name in properties)
        timeout = span(task.timeout) if task.timeout is not None else "none"
        here = Text("✓", "green") if task.here else Text("")
        own: tuple[RenderableType, ...] = (str(task.retention or "–"),) if kept else ()
        own += (_paused(task.paused, task.paused_by),) if paused else ()
        made.add_row(
            Text(task.name), Text(task.queue), str(task.priority), timeout, *own, here, Text(parameters, "dim")
        )
    return Fitted(made, ("timeout", "priority", *(("kept",) if kept else ())))


def audit_view(found: Sequence[Audited], now: datetime) -> Fitted:
    """Return changes of settings, the newest first."""
    made = table("when", "what", "act", "by", "said")
    for one in found:
        said = ", ".join(f"{name} {compact(value)}" for name, value in (one.details or {}).items())
        made.add_row(ago(one.at, now), Text(one.key, "cyan"), one.verb, Text(one.by or "–"), Text(said, "dim"))
    return Fitted(made, ("said",), wrap=True)


def workers_view(workers: Sequence[WorkerRow], now: datetime) -> Fitted:
    """Return workers with their state, judged by when they were last heard, what they do, and what they offer."""
    columns = (
        "worker", "host", "pid", "state", "busy", "used", "attempts", "failed attempts", "holds", "last claim",
        "memory", "up", "queues",
    )  # fmt: skip
    offers = ("offers",) if any(row.info.offers for row in workers) else ()
    made = table(*columns, *offers, right=("pid", "busy", "used", "attempts", "failed attempts", "holds", "memory"))
    for row in workers:
        info, beat, use = row.info, row.beat, row.beat.utilisation
        style = {"running": "green", "draining": "yellow"}.get(beat.state, "bold red")
        state = Text(beat.state if row.silent_since is None else told_silence(row.silent_since, now), style)
        if beat.stuck_threads:
            state.append(f" ({beat.stuck_threads} stuck)", "red")
        if abs(beat.clock_apart) > MAX_CLOCK_ERROR_SECONDS:
            state.append(f" (clock {told_apart(beat.clock_apart)})", "yellow")
        if info.own:
            state.append(" (headrace's own)", "dim")
        here = info.name is None  # else only the worker itself knows its host
        made.add_row(
            Text(short(info.id) if here else info.shown, "cyan"),
            Text(info.host if here else "–"),
            str(info.pid) if here else "–",
            state,
            f"{row.busy}/{info.concurrency}",
            "–" if use.busy_share is None else f"{use.busy_share:.0%}",
            str(beat.done),
            Text(str(use.failed), "red" if use.failed else ""),
            str(row.holds),
            "–" if use.claimed_at is None else ago(use.claimed_at, now),
            "–" if use.memory is None else shown(use.memory),
            span((now - info.started_at).total_seconds()),
            Text(", ".join(info.queues) if info.queues else "all", "dim"),
            *([Text(_offered(info.offers), "dim")] if offers else []),
        )
    return Fitted(
        made, ("up", "holds", "pid", "last claim", "memory", "failed attempts", "attempts", "used"), wrap=True
    )


def _offered(offers: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={one if isinstance(one, str) else compact(one)}" for name, one in offers.items())
