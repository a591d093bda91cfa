"""The conditions of a job that a filter matches, as SQL; ``core.query.matches`` is the same in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from headrace.core.query import Filter
from headrace.core.status import DEFERRED, Status
from headrace.engines.sql.encoding import STAGES, State, labels_asked, micros, stages_of
from headrace.engines.sql.search.dialect import Asked, Dialect

__all__ = ["Terms", "marks", "troubled"]

_WAITS, _HELD, _DONE, _BAD = (
    STAGES[status] for status in (Status.SCHEDULED, Status.RUNNING, Status.COMPLETED, Status.FAILED)
)
_SEEN = f"CASE WHEN j.stage = {_WAITS} AND j.available_at <= ? THEN '{Status.QUEUED}' ELSE j.status END"
"""The status as ``core.query.seen_status`` returns it."""


def troubled(table: str) -> str:
    """Return that a job is live or ended badly, and not as submitted: only such a job has an error, or is suspect."""
    return f"{table}.stage <> {_DONE} AND {table}.state IS NOT NULL"


def marks(values: Iterable[Any]) -> str:
    """Return a question mark for each of these values."""
    return ", ".join("?" for _ in values)


class Terms:
    """The terms of one filter, as of one moment."""

    def __init__(
        self,
        sql: Dialect,
        filter: Filter,
        now: datetime,
        subqueues: list[int] | None,
        label: Callable[[str], str],
        text: Callable[[str], Asked],
    ) -> None:
        """``subqueues``: those of the requested tasks and queues; None: any. ``label``, ``text``: how the engine stores
        a label, and how it searches for a text."""
        self.sql, self.filter, self.now, self.subqueues = sql, filter, now, subqueues
        self.label, self._text = label, text
        self.jobs, self.labels = f"{sql.prefix}jobs", f"{sql.prefix}labels"
        # A deferred job that is due is seen as queued, but stored as deferred.
        self.among = filter.status | (DEFERRED if Status.QUEUED in filter.status else frozenset())
        self.values: list[Any] = []
        self._terms: list[str] = []
        self._ask_for_state()
        self._ask_for_labels()
        self._ask_for_times()
        if filter.text is not None:
            term, values = text(filter.text.lower())
            self._add(term, *values)

    def in_any_status(self) -> Terms:
        """Return the same without a status, for a caller with a condition of its own."""
        filter = replace(self.filter, status=frozenset())
        return Terms(self.sql, filter, self.now, self.subqueues, self.label, self._text)

    def select(self, what: str, source: str, extra: str = "") -> str:
        """Return the statement that selects this of the jobs of a source for which all terms hold."""
        terms = [*self._terms, *([extra] if extra else [])]
        where = " AND ".join(f"({term})" for term in terms) or "true"
        body = self.sql.body if "b." in where else ""
        return f"SELECT {what} FROM {source}{body} WHERE {where}"

    def field(self, name: str, table: str = "j") -> str:
        """Return a field of the state."""
        field = self.sql.state.format(State.__struct_fields__.index(name))
        return field if table == "j" else field.replace("j.", f"{table}.")

    def suspect(self, table: str) -> str:
        """Return that a job is suspect."""
        return f"{self.field('suspect', table)}{self.sql.number} > 0"

    def _add(self, term: str, *values: Any) -> None:
        self._terms.append(term)
        self.values += values

    def _ask_for_state(self) -> None:
        filter = self.filter
        if filter.status:
            self._add(f"j.stage IN ({', '.join(map(str, stages_of(self.among)))})")
            self._add(f"{_SEEN} IN ({marks(filter.status)})", micros(self.now), *sorted(filter.status))
        if self.subqueues is not None:
            self._add(f"j.subqueue IN ({', '.join(map(str, self.subqueues))})")
        if filter.reason:
            reason = f"{self.field('reason')} IN ({marks(filter.reason)})"
            self._add(f"j.stage = {_BAD} AND {reason}", *sorted(filter.reason))
        if filter.fingerprint:
            known = f"{self.field('fingerprint')} IN ({marks(filter.fingerprint)})"
            self._add(f"{troubled('j')} AND {known}", *sorted(filter.fingerprint))
        if filter.suspect:
            self._add(f"{troubled('j')} AND {self.suspect('j')}")
        if filter.worker:
            self._add(f"j.stage = {_HELD} AND j.worker IN ({marks(filter.worker)})", *sorted(filter.worker))

    def _ask_for_labels(self) -> None:
        for several in labels_asked(self.filter):
            texts = [self.label(text) for text in several]
            # A number, not EXISTS: for EXISTS a planner might choose to read all jobs with the label first.
            one = f"SELECT 1 FROM {self.labels} o WHERE o.seq = j.seq AND o.label IN ({marks(texts)}) LIMIT 1"
            self._add(f"({one}) IS NOT NULL", *texts)

    def _ask_for_times(self) -> None:
        filter = self.filter
        for edge, sign in ((filter.created_before, "<"), (filter.created_after, ">=")):
            if edge is not None:
                self._add(f"{self.sql.created} {sign} ?", micros(edge))
        for edge, sign in ((filter.finished_before, "<"), (filter.finished_after, ">=")):
            if edge is not None:
                self._add(f"j.stage >= {_DONE} AND j.finished_at {sign} ?", micros(edge))
