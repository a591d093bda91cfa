"""Everything that can be decided about a job, as functions of a copy of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from headrace.core.attempt import Completed, Ending, ErrorInfo, Failed, Progress, Released, Snoozed, TimedOut
from headrace.core.change import Change
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution, loss, submission
from headrace.core.status import Cause, Reason

Act = Callable[[Job, datetime, float, Rules], Change | None]

OOPS = ErrorInfo("ValueError", "no", "trace", {"why": ["ü", 1]})


def _ends(ending: Ending, *, rides: bool = False) -> Act:
    def act(job: Job, now: datetime, chance: float, rules: Rules) -> Change:
        return execution.finish(job, ending, now, chance, rules, started_at=now if rides else None)

    return act


def _loses(cause: Cause) -> Act:
    return lambda job, now, chance, rules: loss.lose(job, cause, now, chance, rules)


ACTS: dict[str, Act] = {
    "admit": lambda job, now, chance, rules: submission.admit(job, now),
    "admit not": lambda job, now, chance, rules: submission.admit(job, now, OOPS),
    "unblock": lambda job, now, chance, rules: submission.unblock(job, now),
    "unblock not": lambda job, now, chance, rules: submission.unblock(job, now, as_asked=False, cancel=chance < 0.5),
    "accept": lambda job, now, chance, rules: execution.accept(job, now, rules),
    "start": lambda job, now, chance, rules: execution.start(job, now, rules),
    "progress": lambda job, now, chance, rules: execution.progress(job, now, Progress(chance * 100, "on it"), rules),
    "sign": lambda job, now, chance, rules: execution.sign(job, now, rules),
    "complete": _ends(Completed('{"r":1}')),
    "complete riding": _ends(Completed('{"r":2}'), rides=True),
    "fail": _ends(Failed(error=OOPS)),
    "fail riding": _ends(Failed(error=OOPS), rides=True),
    "fail later": _ends(Failed(error=OOPS, delay=2.5)),
    "fail for good": _ends(Failed(error=OOPS, reason=Reason.NON_RETRYABLE)),
    "snooze": _ends(Snoozed(3)),
    "snooze riding": _ends(Snoozed(0), rides=True),
    "release": _ends(Released()),
    "time out": _ends(TimedOut()),
    "lose": _loses(Cause.LEASE),
    "cancel": lambda job, now, chance, rules: actions.cancel(job, now, rules, by="ann"),
    "retry": lambda job, now, chance, rules: actions.retry(job, now, by="bob"),
    "discard": lambda job, now, chance, rules: actions.discard(job, now, note="away"),
    "resolve": lambda job, now, chance, rules: actions.resolve(job, now, result_text="7", by="eve"),
    "resolve not": lambda job, now, chance, rules: actions.resolve(job, now, error=OOPS),
    "retry later": lambda job, now, chance, rules: actions.retry(job, now, delay=2.5, by="bob"),
    "postpone": lambda job, now, chance, rules: actions.postpone(job, now + timedelta(seconds=4 * chance + 1), now),
    "run now": lambda job, now, chance, rules: actions.run_now(job, now, by="ann"),
    "move": lambda job, now, chance, rules: actions.move(job, "slow" if chance < 0.5 else "default", now, by="eve"),
    "reprioritise": lambda job, now, chance, rules: actions.reprioritise(job, round(chance * 10) * 10, now),
    "prepare": lambda job, now, chance, rules: execution.prepare(job, now, rules),
    "note a rerun": lambda job, now, chance, rules: actions.note_rerun(job, UUID(int=7), now, by="bob"),
    "expire": lambda job, now, chance, rules: actions.expire(job, now),
}
