"""Groups: a job and its companions, which are stored with it in one commit or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import UUID

from headrace.core.job import Job
from headrace.engine import InsertAnswer, Refused
from headrace.engines.sql.relations import Admission
from headrace.errors import HeadraceError

__all__ = ["NO_GROUPS", "Groups", "Sorted"]

Sorted = tuple[list[int], list[tuple[UUID, UUID | None]], Admission]
"""Jobs as ``encoding.sort_out`` sorts them: the indexes to store, the reply for each, and why some are refused."""

Answers = Callable[[Mapping[UUID, Job]], list[InsertAnswer]]
"""Makes the replies, given the jobs that are stored by then."""


class Groups:
    """The groups of one insert."""

    def __init__(self, companions: Mapping[UUID, Sequence[Job]] | None) -> None:
        """``companions``: by the id of the job that they go with."""
        self._leaders = {one.id: id for id, jobs in (companions or {}).items() for one in jobs}
        self._companions = companions or {}

    def __bool__(self) -> bool:
        return bool(self._leaders)

    def joined(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs, each with its companions behind it."""
        if not self._leaders:
            return list(jobs)
        return [one for job in jobs for one in (job, *self._companions.get(job.id, ()))]

    def of(self, ids: Iterable[UUID]) -> set[UUID]:
        """Return the ids of all that are in a group with one of these."""
        leaders = {self._leaders.get(id, id) for id in ids}
        return leaders | {one.id for id in leaders for one in self._companions.get(id, ())}

    def leaders(self, answers: Iterable[tuple[Job, InsertAnswer]]) -> list[InsertAnswer]:
        """Return the replies for jobs that are not companions."""
        return [answer for job, answer in answers if job.id not in self._leaders]

    def refusals(self, refused: Mapping[UUID, HeadraceError]) -> dict[UUID, HeadraceError]:
        """Return why leaders are refused, where these jobs are."""
        return {self._leaders.get(id, id): why for id, why in refused.items()}

    def sort_out(
        self, jobs: Sequence[Job], sort: Callable[[Sequence[Job]], Sorted]
    ) -> tuple[list[int], Answers, list[HeadraceError]]:
        """Return which of these jobs to store, what to reply, and why some are refused.

        The companions of a job that is not new are left out. Where a companion is refused, so is its job.
        """
        if not self._leaders:
            fresh, told, admission = sort(jobs)
            return fresh, lambda known: admission.answers(told, known), list(admission.refused.values())
        out, refused = set[UUID](), dict[UUID, HeadraceError]()
        while True:
            rest = [job for job in jobs if job.id not in out]
            fresh, told, admission = sort(rest)
            new, here = {rest[place].id for place in fresh}, {job.id for job in rest}
            why = {rest[place].id: error for place, error in admission.refused.items()}
            guilty = dict[UUID, HeadraceError]()
            for id, error in why.items():
                if (leader := self._leaders.get(id)) is not None and leader in new:
                    guilty.setdefault(leader, error)  # the first says why: others may be refused because of it
            alone = {id for id, leader in self._leaders.items() if id in here and leader not in new}
            if not guilty and not alone:
                break
            refused |= guilty
            out |= alone | self.of(guilty)
        places = {job.id: place for place, job in enumerate(jobs)}

        def answers(known: Mapping[UUID, Job]) -> list[InsertAnswer]:
            found = dict(zip((job.id for job in rest), admission.answers(told, known), strict=True))
            found |= {id: Refused(why) for id, why in refused.items()}
            # There is no reply for companions that were left out.
            return [found.get(job.id) or found[self._leaders[job.id]] for job in jobs]

        errors = [*admission.refused.values(), *refused.values()]
        return [places[rest[place].id] for place in fresh], answers, errors


NO_GROUPS = Groups(None)
