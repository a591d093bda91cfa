"""What may be asked of a worker, checked where it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from headrace.core.bounds import checked_name, whole
from headrace.core.retry import Seconds, seconds
from headrace.errors import ConfigError

__all__ = ["WorkerOptions", "check_worker_options"]


class WorkerOptions(TypedDict, total=False):
    """The options of a worker: of ``app.worker``, and of ``app.lifespan`` with a worker."""

    concurrency: int
    """How many jobs at once; 10."""
    queues: Sequence[str] | None
    """The queues it serves; None: all."""
    burst: bool
    """Whether it ends when no job is left that could be run now."""
    grace: Seconds
    """How long running jobs may take to finish when it stops, before they are handed back; 15 s."""


def check_worker_options(options: WorkerOptions) -> dict[str, Any]:
    """The options as a worker takes them, those left out at their defaults; :raises ConfigError: naming the option"""
    given: dict[str, Any] = {"concurrency": 10, "queues": None, "burst": False, "grace": 15.0, **options}
    if unknown := given.keys() - WorkerOptions.__annotations__.keys():
        known = ", ".join(WorkerOptions.__annotations__)
        raise ConfigError(f"a worker has no option {', '.join(sorted(unknown))}: its options are {known}")
    concurrency, queues, burst = given["concurrency"], given["queues"], given["burst"]
    whole(concurrency, "concurrency", 1)
    if queues is not None:
        if isinstance(queues, str) or not isinstance(queues, Sequence) or not queues:
            raise ConfigError(f"queues must be a sequence of names, or left out for all of them, not {queues!r}")
        for queue in queues:
            checked_name(queue, "each of queues")
    if not isinstance(burst, bool):
        raise ConfigError(f"burst must be True or False, not {burst!r}")
    return given | {"grace": seconds(given["grace"], "grace")}
