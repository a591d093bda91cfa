"""The options of a worker, checked where they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Protocol, TypedDict

import msgspec

from headrace.core.lifecycle.suspects import REQUIREMENT
from headrace.core.matching.match import fault_of_numbers
from headrace.core.times import Seconds, seconds
from headrace.core.validation import checked_document, checked_name, whole
from headrace.errors import ConfigError, UnknownTask, shown
from headrace.worker.handler import Handler

__all__ = ["Named", "WorkerOptions", "check_worker_options", "chosen_handlers"]


class Named(Protocol):
    """A task, or whatever else has its name."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


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
    offers: Mapping[str, Any]
    """What it offers to jobs that require something: JSON values by name, such as ``{"gpu_memory_gb": 24}``."""
    tasks: Sequence[Named | str] | None
    """The tasks of the App that it runs, by name or as they are; None: all."""


def check_worker_options(options: WorkerOptions) -> dict[str, Any]:
    """The options as a worker takes them, those left out at their defaults; :raises ConfigError: naming the option"""
    given: dict[str, Any] = {
        "concurrency": 10,
        "queues": None,
        "burst": False,
        "grace": 15.0,
        "offers": {},
        "tasks": None,
        **options,
    }
    if unknown := given.keys() - WorkerOptions.__annotations__.keys():
        known = ", ".join(WorkerOptions.__annotations__)
        raise ConfigError(f"a worker has no option {', '.join(sorted(unknown))}: its options are {known}")
    concurrency, queues, burst = given["concurrency"], given["queues"], given["burst"]
    concurrency = whole(concurrency, "concurrency", 1)
    if queues is not None:
        if isinstance(queues, str) or not isinstance(queues, Sequence) or not queues:
            raise ConfigError(f"queues must be a sequence of names, or left out for all of them, not {shown(queues)}")
        queues = [checked_name(queue, "each of queues") for queue in queues]
    if not isinstance(burst, bool):
        raise ConfigError(f"burst must be True or False, not {shown(burst)}")
    checked = {"grace": seconds(given["grace"], "grace"), "offers": _checked_offers(given["offers"])}
    return given | checked | {"concurrency": concurrency, "queues": queues, "tasks": _checked_tasks(given["tasks"])}


def _checked_offers(offers: Any) -> dict[str, Any]:
    if not isinstance(offers, Mapping):
        raise ConfigError(f"offers must be a mapping of JSON values by name, not {shown(offers)}")
    for name in offers:
        checked_name(name, "each name in offers")
    if REQUIREMENT in offers:
        raise ConfigError(f"a worker must not offer {REQUIREMENT!r}: headrace keeps that for itself")
    try:
        text = msgspec.json.encode(dict(offers)).decode()
    except RecursionError:
        raise ConfigError("offers must be JSON values: they are nested too deeply, or contain themselves") from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"offers must be JSON values: {error}") from None
    checked_document(text, "offers")
    if (fault := fault_of_numbers(offers)) is not None:
        raise ConfigError(f"offers.{fault}")
    return msgspec.json.decode(text, type=dict[str, Any])


def _checked_tasks(tasks: Any) -> tuple[str, ...] | None:
    if tasks is None:
        return None
    if isinstance(tasks, str) or not isinstance(tasks, Sequence) or not tasks:
        raise ConfigError(
            f"tasks must be a sequence of tasks or of their names, or left out for all, not {shown(tasks)}"
        )
    return tuple(checked_name(getattr(one, "name", one), "each of tasks") for one in tasks)


def chosen_handlers(tasks: Sequence[str] | None, known: Mapping[str, Handler]) -> Mapping[str, Handler]:
    """The handlers of these tasks, under all their names; None: all that are known;
    :raises UnknownTask: naming the nearest that is known"""
    if tasks is None:
        return known
    names = sorted(known)
    for name in tasks:
        if name not in known:
            near = get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names) or 'none'}"
            raise UnknownTask(name, f"this App has no task {name!r}; {hint}")
    chosen = {known[name].name for name in tasks}
    return {name: handler for name, handler in known.items() if handler.name in chosen}
