"""Invariants that an SQL engine checks: a statement for each, which returns the mismatches.

Each is one statement, so that it sees the store as of one moment, while others write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.core.stats.own_tasks import OWN_PREFIX
from headrace.core.stats.verification import MAX_FINDINGS, Invariant, Mismatch
from headrace.core.status import Status
from headrace.core.webhooks.delivery import TASK
from headrace.engines.limits_cache import readable_queue
from headrace.engines.sql.encoding import BY_KEY, STAGES, State

__all__ = ["STATE", "WORDS", "book_of", "counting", "lone_parts", "settings_book"]

STATE = {name: place for place, name in enumerate(State.__struct_fields__)}
"""The index of each field in the array ``state`` of a job."""

_PARTS = (
    ("bodies.seq", "a payload of a job that is gone"),
    ("attempts.seq", "an attempt of a job that is gone"),
    ("events.seq", "an act on a job that is gone"),
    ("labels.seq", "a tag or a relation of a job that is gone"),
    ("entries.seq", "an item or a log line of a job that is gone"),
    ("waits.child", "what a job waited for that is gone"),
)


def lone_parts(*parts: tuple[str, str]) -> str:
    """Selects, for ``verify_parts.sql``, the parts without their job: those of every engine, and these of one."""
    return "\nUNION ALL\n".join(
        f"SELECT '#' || {column}, '{what}' FROM {{schema}}.{column.partition('.')[0]}\n"
        f"WHERE NOT EXISTS (SELECT 1 FROM {{schema}}.jobs j WHERE j.seq = {column})"
        for column, what in (*_PARTS, *parts)
    )


_stages = " ".join(f"WHEN '{status}' THEN {stage}" for status, stage in STAGES.items() if status is not Status.QUEUED)

WORDS = {
    "place_of_told": str(STATE["told"]),
    "delivery": TASK,
    "own_task": f"substr(p.task, 1, {len(OWN_PREFIX)}) = '{OWN_PREFIX}'",
    "lone_parts": lone_parts(),
    **{status.value: f"'{status}'" for status in Status},
    "stage_of_job": (
        f"CASE j.status {_stages} ELSE CASE WHEN j.turn_key IS NULL THEN {STAGES[Status.QUEUED]} ELSE {BY_KEY} END END"
    ),
}
"""The words in statements for statuses, for headrace's own tasks (``core.own_tasks.is_own``), and for the stage that a
job should have (``encoding.stage_of``)."""

_ROWS = {"batches": "batches", "turns": "heads", "waits": "waits"}
"""The table with as many rows as an invariant compares, where that is not the jobs."""


def counting(book: str, statement: str, schema: str = "") -> str:
    """Return an invariant's statement within one that returns how many rows were compared, how many are wrong, and the
    first of those; ``schema``: with a dot, before the name of a table."""
    counted = f"(SELECT count(*) FROM {schema}{_ROWS.get(book, 'jobs')})"
    return (
        f"SELECT {counted} AS checked, count(*) OVER () AS wrong, about, what FROM (\n{statement}\n) AS found\n"
        f"UNION ALL SELECT {counted}, 0, NULL, NULL ORDER BY 2 DESC LIMIT {MAX_FINDINGS}"
    )


def book_of(book: str, rows: Sequence[Any]) -> Invariant:
    """Return the invariant in the result of the statement."""
    found = [Mismatch(what, about) for _, _, about, what in rows if what is not None]
    return Invariant.of(book, rows[0][0], found, wrong=rows[0][1])


def settings_book(rows: Iterable[Any]) -> Invariant:
    """Return the invariant ``settings`` in the result of its statement."""
    found, checked = list[Mismatch](), 0
    for name, value, priority, paused in rows:
        checked, rule = checked + 1, readable_queue(value)
        if rule is not None and (priority, paused) != (rule.priority, rule.paused):
            said = "nothing" if priority is None else _told(priority, bool(paused))
            found.append(
                Mismatch(f"claims read {said}, and the setting says {_told(rule.priority, rule.paused)}", name)
            )
    return Invariant.of("settings", checked, found)


def _told(priority: int, paused: bool) -> str:
    return f"priority {priority}{', paused' if paused else ''}"
