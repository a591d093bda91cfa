"""Failures in groups, as SQL; ``core.fingerprint.grouped`` says the same in Python."""

from __future__ import annotations

from typing import Any

from headrace.core.fingerprint import FailureGroup, group_of
from headrace.core.job import Job
from headrace.core.status import Status
from headrace.engines.sql.dialect import Asking
from headrace.engines.sql.record import STAGES, moment
from headrace.engines.sql.terms import Terms, troubled

__all__ = ["Best", "best_groups", "groups_of"]

Best = list[tuple[Any, ...]]
"""Of each group: how many jobs, how many failed, when it was first and last seen, the number of its newest job."""


def best_groups(terms: Terms, limit: int) -> Asking[Best]:
    """The largest groups of jobs with an error."""
    sql, jobs = terms.sql, terms.jobs
    known = f"{troubled('j')} AND {terms.field('fingerprint')} IS NOT NULL"
    ended_so = f"sum(CASE j.status WHEN '{Status.FAILED}' THEN 1 ELSE 0 END)"
    seen = f"coalesce(CAST({terms.field('failed_at')} AS bigint), j.finished_at, j.updated_at)"  # fingerprint.seen_at
    what = f"count(*), {ended_so}, min({seen}), max({seen}), max(j.seq)"
    order = "ORDER BY 1 DESC, 5 DESC LIMIT ?"
    by_print = f"{terms.select(what, f'{jobs} j', known)} GROUP BY {terms.field('fingerprint')} {order}"
    # Versions before kept no fingerprint.
    old = f"{terms.field('fingerprint')} IS NULL AND {sql.has_error}"
    ended = f"SELECT x.seq FROM {jobs} x WHERE x.stage = {STAGES[Status.FAILED]}"
    waits = f"x.stage = {STAGES[Status.RETRYING]} AND x.status = '{Status.RETRYING}'"
    source = (
        f"({ended} UNION ALL SELECT x.seq FROM {jobs} x WHERE {waits}) s"
        f" {sql.join} {jobs} j ON j.seq = s.seq{sql.error}"
    )
    by_type = f"{terms.select(what, source, old)} GROUP BY {sql.task}, {sql.error_type} {order}"
    rows = list[Any]()
    for asked in (by_print, by_type):
        rows += yield asked, [*terms.values, limit]
    return sorted((tuple(row) for row in rows), key=lambda row: (-row[0], -row[4]))[:limit]


def groups_of(best: Best, newest: dict[int, Job]) -> list[FailureGroup]:
    """The groups, with their newest jobs by number."""
    return [
        group_of(newest[seq], jobs, int(failed), moment(first), moment(last))
        for jobs, failed, first, last, seq in best
        if seq in newest
    ]
