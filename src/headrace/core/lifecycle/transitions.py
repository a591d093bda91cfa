"""The transition table: which verb may start from which status, and where it may lead."""

from __future__ import annotations

from headrace.core.job import Job
from headrace.core.status import Status, Verb
from headrace.errors import TransitionRefused

__all__ = ["TRANSITIONS", "check"]

S, V = Status, Verb

_PLACED = frozenset({S.WAITING, S.QUEUED, S.SCHEDULED})
_STAYS = {one: frozenset({one}) for one in (S.WAITING, S.QUEUED, S.SCHEDULED, S.RETRYING)}

TRANSITIONS: dict[Verb, dict[Status, frozenset[Status]]] = {
    V.ADMIT: {S.PENDING: _PLACED | {S.FAILED}},
    V.UNBLOCK: {S.WAITING: frozenset({S.QUEUED, S.SCHEDULED, S.CANCELLED, S.FAILED})},
    V.PROMOTE: dict.fromkeys((S.SCHEDULED, S.RETRYING), frozenset({S.QUEUED})),
    V.CLAIM: {S.QUEUED: frozenset({S.ASSIGNED, S.ACCEPTED})},
    V.ACCEPT: {S.ASSIGNED: frozenset({S.ACCEPTED})},
    V.START: dict.fromkeys((S.ASSIGNED, S.ACCEPTED), frozenset({S.RUNNING})),
    V.PROGRESS: {S.RUNNING: frozenset({S.RUNNING})},
    V.COMPLETE: {S.RUNNING: frozenset({S.COMPLETED})},
    # With a cancel requested, everything but complete ends cancelled: hence CANCELLED in the next four.
    V.FAIL: {S.RUNNING: frozenset({S.RETRYING, S.FAILED, S.CANCELLED})},
    V.SNOOZE: {S.RUNNING: frozenset({S.SCHEDULED, S.CANCELLED})},
    V.RELEASE: dict.fromkeys((S.ASSIGNED, S.ACCEPTED, S.RUNNING), frozenset({S.QUEUED, S.CANCELLED})),
    V.LOSE: {
        S.ASSIGNED: frozenset({S.QUEUED, S.FAILED}),
        S.ACCEPTED: frozenset({S.QUEUED, S.FAILED, S.CANCELLED}),
        S.RUNNING: frozenset({S.RETRYING, S.FAILED, S.CANCELLED}),
    },
    V.EXPIRE: dict.fromkeys((S.PENDING, S.WAITING, S.QUEUED, S.SCHEDULED), frozenset({S.CANCELLED})),
    V.CANCEL: {
        **dict.fromkeys(
            (S.PENDING, S.WAITING, S.SCHEDULED, S.QUEUED, S.ASSIGNED, S.RETRYING), frozenset({S.CANCELLED})
        ),
        S.ACCEPTED: frozenset({S.ACCEPTED}),
        S.RUNNING: frozenset({S.RUNNING}),
    },
    V.RETRY: dict.fromkeys((S.FAILED, S.CANCELLED), _PLACED),
    V.DISCARD: dict.fromkeys((S.COMPLETED, S.FAILED), frozenset({S.CANCELLED})),
    V.RESOLVE: {
        **dict.fromkeys((S.WAITING, S.QUEUED, S.SCHEDULED, S.RETRYING), frozenset({S.COMPLETED, S.FAILED})),
        S.FAILED: frozenset({S.COMPLETED}),
    },
    V.POSTPONE: dict.fromkeys((S.QUEUED, S.SCHEDULED, S.RETRYING), frozenset({S.SCHEDULED})),
    V.RUN_NOW: dict.fromkeys((S.SCHEDULED, S.RETRYING), frozenset({S.QUEUED})),
    V.MOVE: _STAYS,
    V.REPRIORITISE: _STAYS,
    V.REPLACE: {
        S.WAITING: frozenset({S.WAITING}),
        **dict.fromkeys((S.QUEUED, S.SCHEDULED, S.RETRYING), frozenset({S.QUEUED, S.SCHEDULED})),
        # What a worker holds stays as it is, and frees its dedup key.
        **{one: frozenset({one}) for one in (S.ASSIGNED, S.ACCEPTED, S.RUNNING)},
    },
    V.LAPSE: {S.COMPLETED: frozenset({S.COMPLETED})},
    V.PREPARE: dict.fromkeys((S.ASSIGNED, S.ACCEPTED), frozenset({S.ACCEPTED})),
    V.RERUN: dict.fromkeys((S.COMPLETED, S.FAILED, S.CANCELLED), _PLACED),
    V.PRUNE: dict.fromkeys((S.COMPLETED, S.FAILED, S.CANCELLED), frozenset[Status]()),
}
"""verb → the status it starts from → the statuses it may lead to."""


def check(job: Job, verb: Verb, to: Status | None = None) -> None:
    """Refuse a pair of verb and status that is not in the table."""
    targets = TRANSITIONS[verb].get(job.status)
    if targets is None or (to is not None and to not in targets):
        raise TransitionRefused(job, verb)
