"""An alert: its kind, what it is about, what is wrong, and the remedy."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from headrace.core.codec.record import Record

__all__ = ["START", "START_HUB", "Alert", "Kind", "Level"]

Level = Literal["warn", "fail"]

START = "start a worker: headrace worker MODULE:APP"
START_HUB = "start a hub, which delivers webhooks: headrace hub"


class Kind(StrEnum):
    """What can be wrong."""

    NO_WORKER = "no_worker"
    SILENT_WORKER = "silent_worker"
    BLOCKED_WORKER = "blocked_worker"
    STUCK_THREADS = "stuck_threads"
    WRONG_CLOCK = "wrong_clock"
    UNSERVED_TASK = "unserved_task"
    UNSERVED_QUEUE = "unserved_queue"
    UNMET_REQUIREMENTS = "unmet_requirements"
    GROWING_QUEUE = "growing_queue"
    SLOW_QUEUE = "slow_queue"
    FULL_QUEUE = "full_queue"
    FULL_TASK = "full_task"
    FAILING_TASK = "failing_task"
    DEAD_LETTERS = "dead_letters"
    QUARANTINE = "quarantine"
    PAUSED_QUEUE = "paused_queue"
    PAUSED_TASK = "paused_task"
    UNDEFINED_RATE = "undefined_rate"
    WEBHOOK_OFF = "webhook_off"
    UNREADABLE_SETTING = "unreadable_setting"

    @property
    def check(self) -> str:
        """Return the name of the doctor's check that finds it."""
        return _CHECKS[self]

    @property
    def by_worker(self) -> bool:
        """Return whether it is about single workers, of which there are ever new ones."""
        return self in _BY_WORKER


_CHECKS = {
    Kind.NO_WORKER: "workers",
    Kind.SILENT_WORKER: "workers",
    Kind.BLOCKED_WORKER: "workers",
    Kind.STUCK_THREADS: "workers",
    Kind.WRONG_CLOCK: "clock",
    Kind.UNSERVED_TASK: "tasks",
    Kind.UNSERVED_QUEUE: "queues",
    Kind.UNMET_REQUIREMENTS: "requirements",
    Kind.GROWING_QUEUE: "queues",
    Kind.SLOW_QUEUE: "queues",
    Kind.FULL_QUEUE: "limits",
    Kind.FULL_TASK: "limits",
    Kind.FAILING_TASK: "failures",
    Kind.DEAD_LETTERS: "failures",
    Kind.QUARANTINE: "quarantine",
    Kind.PAUSED_QUEUE: "queues",
    Kind.PAUSED_TASK: "tasks",
    Kind.UNDEFINED_RATE: "rates",
    Kind.WEBHOOK_OFF: "webhooks",
    Kind.UNREADABLE_SETTING: "settings",
}
_BY_WORKER = frozenset({Kind.SILENT_WORKER, Kind.BLOCKED_WORKER, Kind.STUCK_THREADS, Kind.WRONG_CLOCK})


class Alert(msgspec.Struct, Record, frozen=True):
    """A problem that a person should know of, and what to do about it."""

    kind: Kind
    level: Level
    """``fail``: jobs do not run, or most attempts fail; ``warn``: less than that."""
    subject: str
    """The name of the queue, task, worker, rate or setting; empty if it is about the store as a whole."""
    message: str
    remedy: str
