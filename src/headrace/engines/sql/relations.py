"""Admission: which new jobs may have the relations that they request."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from uuid import UUID

from headrace.core.batch import refusal_of_member
from headrace.core.job import Job
from headrace.core.lifecycle import family
from headrace.core.status import Status
from headrace.engine import Duplicated, InsertAnswer, Inserted, Refused
from headrace.engines.sql.encoding import key_of, request_of, sort_out
from headrace.engines.sql.reader import Stored
from headrace.errors import HeadraceError

__all__ = ["Admission", "Stand", "answers_of_stored", "is_related"]

Stand = tuple[Status, bool]
"""The status of a job, and whether its cancel was requested."""

_WAITING = Status.WAITING  # a lookup in its class costs more than the comparison


def is_related(job: Job) -> bool:
    """Return whether the job has relations, waits, or has its own retention: then more than the job is stored."""
    spec = job.spec
    if spec.parent is not None or spec.batch is not None or spec.retention is not None:
        return True
    return bool(spec.after) or job.status is _WAITING


class Admission:
    """Admits new jobs one after the other: admitted ones may be relatives of later ones."""

    def __init__(self, here: Mapping[UUID, Stand], cancelled: Container[UUID]) -> None:
        """``here``: the jobs that new ones name, as far as they are stored; ``cancelled``: their cancelled batches."""
        self._given, self._here, self._cancelled = here, dict(here), cancelled
        self.refused: dict[int, HeadraceError] = {}
        """The indexes of the jobs that were refused, and why."""

    def anew(self) -> Admission:
        """Return one that has admitted no job yet."""
        return Admission(self._given, self._cancelled)

    def refuses(self, place: int, job: Job, why: HeadraceError | None = None) -> bool:
        """Return whether the job at this index is refused, ``why`` or for its relatives; else it counts as stored."""
        why = why or self._refusal(job)
        if why is None:
            self._here.setdefault(job.id, (job.status, job.cancel_requested_at is not None))
        else:
            self.refused[place] = why
        return why is not None

    def _refusal(self, job: Job) -> HeadraceError | None:
        spec = job.spec
        if spec.parent is not None and (stand := self._here.get(spec.parent)) is not None:
            why = family.refusal(spec.parent, *stand, job)
            if why is not None:
                return why
        if spec.batch is not None:
            why = refusal_of_member(spec.batch, spec.batch in self._cancelled, job)
            if why is not None:
                return why
        missing = next((id for id in spec.after if id not in self._here), None)
        return None if missing is None else family.unknown_parent(missing)

    def answers(self, told: Iterable[tuple[UUID, UUID | None]], jobs: Mapping[UUID, Job]) -> list[InsertAnswer]:
        """Return the reply for each job, from the result of ``encoding.sort_out``."""
        return [
            Refused(self.refused[place])
            if place in self.refused
            else Inserted(jobs[id])
            if of is None
            else Duplicated(jobs[of])
            for place, (id, of) in enumerate(told)
        ]


def answers_of_stored(
    jobs: Sequence[Job],
    stored: Stored,
    merged: Mapping[UUID, Job],
    *,
    key_of: Callable[[Job], str | None] = key_of,
    request_of: Callable[[Job], str | None] = request_of,
) -> dict[UUID, InsertAnswer]:
    """Return the replies for those of these jobs that are not new, whether or not there is room for them."""
    known, here, holders, firsts = stored
    wrong, new = dict[int, HeadraceError](), set[int]()

    def refused(place: int, job: Job, why: HeadraceError | None) -> bool:
        if why is None:
            new.add(place)
        else:
            wrong[place] = why
        return True

    keys = {"key_of": key_of, "request_of": request_of}
    _, told = sort_out(jobs, here, holders, firsts, refused, merged=merged, **keys)
    known = known | {job.id: job for job in merged.values()}
    return {
        id: Refused(wrong[place])
        if place in wrong
        else Inserted(known[id])
        if of is None
        else Duplicated(known[of], replaced=id in merged)
        for place, (id, of) in enumerate(told)
        if place not in new
    }
