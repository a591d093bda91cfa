"""Broken variants of headrace, one line each: what the simulation and the small model must find.

``python -m tests.simulation.variants`` lists them; with the name of one, it runs the small model on it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

__all__ = ["VARIANTS", "Variant", "install"]


class Variant(NamedTuple):
    """One line, broken."""

    name: str
    module: str
    original: str
    broken: str
    description: str
    scene: str = "pair"
    """Where the small model finds it."""
    faults: int = 1
    """With how many faults it does."""


_LIFECYCLE = "headrace.core.lifecycle"
_MEMORY = "headrace.engines.memory"

VARIANTS = {
    one.name: one
    for one in (
        Variant(
            "fence without rev",
            "headrace.core.change",
            "    if change.rev != job.rev:",
            "    if change.rev > job.rev:",
            "a late decision overwrites what came after it",
        ),
        Variant(
            "fence without epoch",
            "headrace.core.change",
            "(change.worker, change.epoch) != (job.worker, job.epoch)",
            "change.worker != job.worker",
            "a worker goes on with a job that it lost and got again",
            "buffer",
            2,
        ),
        Variant(
            "stale is acknowledged",
            "headrace.core.change",
            "return Applied(change.job) if _closed(change, attempt) else WasStale(job)",
            "return Applied(change.job)",
            "a finish that came too late counts as stored",
        ),
        Variant(
            "claim of the buried",
            f"{_MEMORY}.jobs",
            "            if not state.is_alive(worker):",
            "            if worker not in state.workers:",
            "a claim does not test that its worker lives",
        ),
        Variant(
            "claim without epoch",
            f"{_LIFECYCLE}.claim",
            "            epoch=job.epoch + 1,",
            "            epoch=job.epoch,",
            "a new owner has the epoch of the last one",
            faults=0,
        ),
        Variant(
            "claim given twice",
            f"{_MEMORY}.jobs",
            "given = [job for job in held if job.claim == request]",
            "given = [job for job in held if job.claim == request and job.unstarted_losses]",
            "a repeated claim takes further jobs",
        ),
        Variant(
            "claim of the expired",
            "headrace.core.limits.selection",
            "        if not entry.expired:",
            "        if not entry.unread:",
            "a job begins after its last moment to start",
            "expiry",
        ),
        Variant(
            "release forgets the last moment",
            f"{_LIFECYCLE}.execution",
            "    expiry = job.not_after if job.first_started_at is None else None",
            "    expiry = None",
            "a job that was handed back never expires",
            "expiry",
            2,
        ),
        Variant(
            "start rides on the last attempt",
            f"{_LIFECYCLE}.execution",
            "    return first and job.charged + 1 < job.spec.retry.max_attempts",
            "    return first",
            "the handler of a job without retries may be called twice",
            "single attempts",
        ),
        Variant(
            "start rides in every attempt",
            f"{_LIFECYCLE}.execution",
            "    first = job.attempt == job.unstarted_losses == job.blameless_losses",
            "    first = True",
            "each lost start is one more call of the handler",
            faults=2,
        ),
        Variant(
            "key released late",
            f"{_LIFECYCLE}.decision",
            "    return KeyEffect.RELEASE if until is None or until <= at else _KEEP",
            "    return _KEEP",
            "a completed job holds its dedup key",
            "dedup key",
            0,
        ),
        Variant(
            "key kept by the cancelled",
            f"{_LIFECYCLE}.decision",
            "    return _KEEP if job.spec.dedup is None else KeyEffect.RELEASE",
            "    return _KEEP",
            "a job that did not complete holds its dedup key",
            "dedup key",
        ),
        Variant(
            "key held by two",
            f"{_MEMORY}.state",
            "        if holder is not None:",
            "        if holder is not None and holder.worker is None:",
            "a submit takes the dedup key of a job that is held",
            "dedup key",
            0,
        ),
        Variant(
            "retry takes a held key",
            f"{_MEMORY}.state",
            "self.table.holder(change.job) if change.key is KeyEffect.TAKE else None",
            "None",
            "a retry takes the dedup key from another job",
            "dedup key",
            2,
        ),
        Variant(
            "permit given back twice",
            f"{_MEMORY}.job_table",
            "for bound in counted_by(group_of(job)):",
            "for bound in counted_by(group_of(job)) if job.cancel_requested_at is None else ():",
            "a request to cancel gives the slot back, and so does the end",
            "limit",
        ),
        Variant(
            "permit forgotten",
            f"{_MEMORY}.jobs",
            "(state.spent | dealt.spent).items() if lapses(one) > now}",
            "(state.spent | dealt.spent).items() if lapses(one) < now}",
            "what was spent of a rate is not remembered",
            "rate",
            0,
        ),
        Variant(
            "tally apart from its change",
            f"{_MEMORY}.relations",
            "        if change.tally is not None and job.spec.batch is not None:",
            "        if change.tally is not None and job.spec.batch is not None and change.worker is not None:",
            "only what workers write is counted in the batch",
            "batch",
        ),
        Variant(
            "batch over too early",
            "headrace.core.batch",
            "    return batch.sealed and batch.tally.ended >= batch.tally.total",
            "    return batch.sealed and batch.tally.ended > 0",
            "what follows a batch begins with its first end",
            "batch",
            0,
        ),
        Variant(
            "batch never over",
            "headrace.core.batch",
            "    return batch.sealed and batch.tally.ended >= batch.tally.total",
            "    return batch.sealed and batch.tally.ended > batch.tally.total",
            "what follows a batch never begins",
            "batch",
            0,
        ),
        Variant(
            "change without its note",
            f"{_LIFECYCLE}.decision",
            "    ends = ENDS if made.status in ENDED and job.status not in ENDED else ()",
            "    ends = ENDS if made.status is Status.COMPLETED and job.status not in ENDED else ()",
            "the failure of a job is not told to those that wait for it",
            "graph",
        ),
        Variant(
            "note dropped before its effect",
            f"{_MEMORY}.relations",
            "            hearing += [(note, one) for one in part]",
            "            hearing += [(note, one) for one in part if self._records[one].worker is None]",
            "the note of a cancel does not reach a child that is held",
            "family",
        ),
        Variant(
            "released by a cancelled parent",
            f"{_LIFECYCLE}.family",
            "any(one in ENDED for one in set(parents) - {Status.COMPLETED})",
            "any(one is Status.FAILED for one in set(parents) - {Status.COMPLETED})",
            "a job runs though what it waits for was cancelled",
            "graph",
        ),
        Variant(
            "end without epoch",
            f"{_LIFECYCLE}.decision",
            '        fields |= {"epoch": job.epoch + 1, "worker": None, "claim": None}',
            '        fields |= {"worker": None, "claim": None}',
            "a cancelled job has the epoch of its last owner",
            faults=2,
        ),
        Variant(
            "cancel forgotten by a failure",
            f"{_LIFECYCLE}.execution",
            "    if reason is not None or job.cancel_requested_at is not None:",
            "    if reason is not None:",
            "a job that fails after a request to cancel is retried",
            faults=2,
        ),
        Variant(
            "cancel forgotten by a snooze",
            f"{_LIFECYCLE}.execution",
            "        return _cancelled(job, Verb.SNOOZE, now)",
            "        pass",
            "a job that snoozes after a request to cancel lives on",
            faults=2,
        ),
        Variant(
            "retry forgets attempts",
            f"{_LIFECYCLE}.actions",
            '        "unstarted_losses": 0,\n        "suspect": 0,',
            '        "unstarted_losses": 0, "attempt": 0,\n        "suspect": 0,',
            "attempts after a retry have the numbers of those before",
            "single attempts",
            2,
        ),
        Variant(
            "release that charges",
            f"{_LIFECYCLE}.execution",
            '    fields = LOOSE | {"status": Status.QUEUED, "epoch": job.epoch + 1, "act_by": expiry}',
            '    fields = LOOSE | {"status": Status.QUEUED, "epoch": job.epoch + 1, "act_by": expiry,'
            ' "charged": job.charged + 1}',
            "a job that is handed back has lost an attempt",
        ),
        Variant(
            "loss that does not charge",
            f"{_LIFECYCLE}.loss",
            "    charged = job.charged if spared else job.charged + 1",
            "    charged = job.charged",
            "a job that kills its workers is tried for ever",
            "single attempts",
        ),
        Variant(
            "the dead are not swept",
            f"{_MEMORY}.jobs",
            "if not alive or unnamed >= _UNNAMED)",
            "if unnamed >= _UNNAMED)",
            "jobs of a buried worker are found only by their deadlines",
        ),
        Variant(
            "promotion without rev",
            f"{_LIFECYCLE}.claim",
            "replace(job, status=Status.QUEUED, rev=job.rev + 1, ",
            "replace(job, status=Status.QUEUED, ",
            "a decision on a deferred job holds after it was queued",
        ),
    )
}
"""By name."""


class _BrokenLoader(SourceFileLoader):
    """Loads a module with one line broken."""

    def __init__(self, variant: Variant, path: str) -> None:
        super().__init__(variant.module, path)
        self._variant = variant

    def get_code(self, fullname: str) -> CodeType:
        """Compile the broken source; what is cached is that of the whole one."""
        source = Path(self.path).read_text()
        assert source.count(self._variant.original) == 1, f"{self._variant.name}: its line is not there, or not alone"
        return compile(source.replace(self._variant.original, self._variant.broken), self.path, "exec")


class _BrokenFinder(MetaPathFinder):
    """Finds the module of a variant before others do."""

    def __init__(self, variant: Variant) -> None:
        self._variant = variant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._variant.module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _BrokenLoader(self._variant, spec.origin)
        return spec


def install(variant: Variant) -> None:
    """Break the line in this process, in which its module must not be imported yet."""
    assert variant.module not in sys.modules, f"{variant.module} is imported already"
    sys.meta_path.insert(0, _BrokenFinder(variant))


def _main(arguments: Sequence[str]) -> int:
    if not arguments:
        for one in VARIANTS.values():
            sys.stdout.write(f"| {one.name} | {one.description} | {one.scene} | {one.faults} |\n")
        return 0
    variant = VARIANTS[arguments[0]]
    install(variant)
    from headrace.testing.exhaustive.__main__ import main  # after the line is broken

    return main(arguments[1:] or [variant.scene, "--faults", str(variant.faults)])


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
