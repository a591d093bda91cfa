"""Failures in groups, as SQL; ``core.stats.failures.grouped`` is the same in Python."""

from __future__ import annotations

from typing import Any

from headrace.core.job import Job
from headrace.core.stats.failures import UNDONE, FailureGroup, group_of
from headrace.core.status import LIVE, Status
from headrace.engines.sql.encoding import STAGES, moment
from headrace.engines.sql.search.conditions import Terms, troubled
from headrace.engines.sql.search.dialect import Asking

__all__ = ["Best", "best_groups", "groups_of"]

Best = list[tuple[Any, ...]]
"""Of each group: how many jobs, how many failed, when it was first and last seen, the number of its newest job."""

_DONE, _WAITS = STAGES[Status.COMPLETED], STAGES[Status.RETRYING]


def best_groups(terms: Terms, limit: int, among: int | None) -> Asking[Best]:
    """Return the largest groups of jobs with an error; ``among``: of those that ended, so many that ended last."""
    sql, parts = terms.sql, [*_live(terms), *_ended(terms, among)]
    if not parts:
        return []
    # Earlier versions stored no fingerprint: their jobs are grouped by task and type.
    by_type = ", ".join(f"CASE WHEN j.print IS NULL THEN {what} END" for what in (sql.task, sql.error_type))
    what = "count(*), sum(j.failed), min(j.seen), max(j.seen), max(j.seq)"
    found = " UNION ALL ".join(part for part, _ in parts)
    asked = f"SELECT {what} FROM ({found}) j GROUP BY j.print, {by_type} ORDER BY 1 DESC, 5 DESC LIMIT ?"
    rows = yield asked, [*(value for _, values in parts for value in values), limit]
    return [tuple(row) for row in rows]


def _live(terms: Terms) -> list[tuple[str, list[Any]]]:
    """Return the SQL for live jobs that are in a group, if any are requested."""
    filter, known = terms.filter, terms.field("fingerprint")
    ended = filter.reason or filter.finished_after is not None or filter.finished_before is not None
    if ended or (filter.status and not filter.status & LIVE):
        return []
    old = f"j.stage = {_WAITS} AND j.status = '{Status.RETRYING}' AND {terms.sql.has_error} AND {known} IS NULL"
    return [_part(terms, f"{troubled('j')} AND {known} IS NOT NULL AND j.stage < {_DONE}"), _part(terms, old)]


def _ended(terms: Terms, among: int | None) -> list[tuple[str, list[Any]]]:
    """Return the SQL for jobs that ended with an error.

    The index of ends has them in the order of their ends. A further term, that the stage is that of the status, would
    make PostgreSQL estimate so few that it reads them all.
    """
    asked, plain, found = terms.filter.status, terms.in_any_status(), list[tuple[str, list[Any]]]()
    for status in sorted(UNDONE):
        if not asked or status in asked:
            found.append(_part(plain, f"j.stage >= {_DONE} AND j.status = '{status}'", among))
    if not found:
        return []
    ended, values = " UNION ALL ".join(part for part, _ in found), [value for _, several in found for value in several]
    if among is not None and len(found) > 1:
        ended, values = f"SELECT * FROM ({ended}) e ORDER BY ended_at DESC, seq DESC LIMIT ?", [*values, among]
    return [(f"SELECT * FROM ({ended}) w WHERE w.wrong", values)]


def _part(terms: Terms, where: str, among: int | None = None) -> tuple[str, list[Any]]:
    """Return the SQL that selects what the group of each job is made of. None is merged with the statement around it,
    so that documents are read once."""
    seen = f"coalesce(CAST({terms.field('failed_at')} AS bigint), j.finished_at, j.updated_at)"  # failures.seen_at
    failed = f"CASE j.status WHEN '{Status.FAILED}' THEN 1 ELSE 0 END"
    what = f"j.seq AS seq, j.subqueue AS subqueue, j.finished_at AS ended_at, {failed} AS failed"
    what = f"{what}, {terms.sql.has_error} AS wrong, {seen} AS seen, {terms.field('fingerprint')} AS print"
    chosen = terms.select(what, f"{terms.jobs} j", where)
    if among is None:
        return f"SELECT * FROM ({chosen}{terms.sql.all_of_them}) p", [*terms.values]
    last = " ORDER BY j.finished_at DESC, j.seq DESC LIMIT ?"
    return f"SELECT * FROM ({chosen}{last}) p", [*terms.values, among]


def groups_of(best: Best, newest: dict[int, Job]) -> list[FailureGroup]:
    """Return the groups, with their newest jobs by number."""
    return [
        group_of(newest[seq], jobs, int(failed), moment(first), moment(last))
        for jobs, failed, first, last, seq in best
        if seq in newest
    ]
