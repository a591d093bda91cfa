"""Candidates: the jobs that an index finds for a filter, among which those that match are selected."""

from __future__ import annotations

from typing import Any

from headrace.core.status import ENDED, Status
from headrace.engines.sql.encoding import BY_KEY, STAGES, labels_asked, micros, stages_of
from headrace.engines.sql.search.conditions import Terms, troubled
from headrace.engines.sql.search.dialect import Asking, Part

__all__ = ["MAX_SORTED_CANDIDATES", "Candidates"]

MAX_SORTED_CANDIDATES = 2000
"""Maximum candidates that are gathered and sorted."""

_ANY_STATUS = frozenset({BY_KEY, *(STAGES[status] for status in (Status.SCHEDULED, Status.QUEUED, Status.RUNNING))})
"""Stages with an index of their own; in the others, jobs are found by their status as well."""
_DONE, _BAD, _HELD = (STAGES[status] for status in (Status.COMPLETED, Status.FAILED, Status.RUNNING))


class Candidates:
    """The candidates of one filter."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.choices = self._choices()
        """Lists of candidates, each of which has all that match."""

    def source(self, part: Part) -> str:
        """Return the tables for the jobs among these candidates below an order number."""
        terms = self._terms
        # Those that are not in order must not be searched in the order of their numbers, among all jobs.
        seq, end = ("x.seq", "") if part.ordered else ("+x.seq", terms.sql.all_of_them)
        found = f"SELECT x.seq FROM {part.table} x WHERE {part.where} AND {seq} < ?{end}"
        return f"({found}) s {terms.sql.join} {terms.jobs} j ON j.seq = s.seq"

    def few(self, place: int) -> Asking[list[Part] | None]:
        """Return the shortest list of candidates below an order number, if it is short enough to be sorted."""
        best, least = None, MAX_SORTED_CANDIDATES
        for parts in self.choices:
            size = 0
            for part in parts:
                seq, order = ("x.seq", " ORDER BY x.seq DESC") if part.ordered else ("+x.seq", "")
                asked = f"SELECT 1 FROM {part.table} x WHERE {part.where} AND {seq} < ?{order} LIMIT ?"
                counted = f"SELECT count(*) FROM ({asked}) found"
                rows = yield counted, [*part.values, place, least]
                size += rows[0][0]
                if size >= least:
                    break
            if size < least:
                best, least = parts, size
        return best

    def _choices(self) -> list[list[Part]]:
        terms, found = self._terms, list[list[Part]]()
        filter, jobs = terms.filter, terms.jobs
        for several in labels_asked(filter):
            found.append([Part(terms.labels, "x.label = ?", [terms.label(text)], True) for text in several])
        if filter.worker:
            found.append([Part(jobs, f"x.stage = {_HELD} AND x.worker = ?", [id]) for id in sorted(filter.worker)])
        if filter.fingerprint:
            field = terms.field("fingerprint", "x")
            where = f"{troubled('x')} AND {field} IS NOT NULL AND {field} = ?"
            found.append([Part(jobs, where, [one], True) for one in sorted(filter.fingerprint)])
        if filter.suspect:
            found.append([Part(jobs, f"{troubled('x')} AND {terms.suspect('x')}")])
        if filter.reason:
            where = f"x.stage = {_BAD} AND {terms.field('reason', 'x')} = ?"
            found.append([Part(jobs, where, [one], True) for one in sorted(filter.reason)])
        if filter.status:
            found.append([part for stage in stages_of(terms.among) for part in self._in_stage(stage)])
        if filter.finished_after is not None or filter.finished_before is not None:
            found.append(self._finished())
        return found

    def _in_stage(self, stage: int) -> list[Part]:
        terms = self._terms
        if stage in _ANY_STATUS:
            return [Part(terms.jobs, f"x.stage = {stage}")]
        statuses = [status for status in sorted(terms.among) if stages_of([status]) == [stage]]
        where = f"x.stage {f'>= {stage}' if stage == _DONE else f'= {stage}'} AND x.status = ?"
        return [Part(terms.jobs, where, [status], stage in terms.sql.by_status) for status in statuses]

    def _finished(self) -> list[Part]:
        terms, where, values = self._terms, f"x.stage >= {_DONE} AND x.status = ?", list[Any]()
        for edge, sign in ((terms.filter.finished_before, "<"), (terms.filter.finished_after, ">=")):
            if edge is not None:
                where, values = f"{where} AND x.finished_at {sign} ?", [*values, micros(edge)]
        among = [status for status in sorted(ENDED) if not terms.among or status in terms.among]
        return [Part(terms.jobs, where, [status, *values]) for status in among]
