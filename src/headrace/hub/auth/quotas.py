"""Quotas of keys and customers: submits a second, live jobs, and the highest priority."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING, cast

from headrace.core.status import LIVE, Verb
from headrace.core.webhooks.delivery import TASK
from headrace.core.webhooks.target import Target
from headrace.http.problems import Fault, Problem
from headrace.hub.auth.caller import Caller

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.api.filters import Filters
    from headrace.hub.options import HubOptions

__all__ = ["Quotas", "SubmitRate"]

_OF_JOBS = "wait until some have ended, or cancel some"
_OF_MESSAGES = (
    "wait until some are delivered and jobs have ended, switch off a webhook that does not answer, or have fewer"
    " webhooks"
)
"""What a customer with too many messages can do."""

_COUNT_SECONDS = 1.0
"""Minimum seconds between two counts of a customer's jobs."""


class SubmitRate:
    """A burst of submits, then so many a second. A bulk submit counts as one, for it is one write. Its jobs that are
    refused for lack of a profile count one by one: else a key could keep the hub busy in vain."""

    _LONGEST = 60.0
    """Maximum seconds for which a key has to wait."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, max(burst, 1)
        self._left, self._at = float(self._burst), 0.0

    def spend(self, now: float) -> None:
        """Count one submit.

        :raises Problem: 429
        """
        if (why := self.refusal(now)) is not None:
            raise why
        self._left -= 1

    def owe(self, now: float, count: int) -> None:
        """Count submits that were refused."""
        self._renew(now)
        self._left = max(self._left - count, -self._rate * self._LONGEST)

    def refusal(self, now: float) -> Problem | None:
        """Return why nothing can be submitted now; None: it can."""
        self._renew(now)
        if self._left >= 1:
            return None
        detail = f"this key may submit {self._rate:g} times a second, and {self._burst} times at once"
        return _too_many(detail, ceil((1 - self._left) / self._rate))

    def _renew(self, now: float) -> None:
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now


class _Count:
    """The number of live jobs, as far as this hub knows."""

    def __init__(self) -> None:
        self.live = 0
        self.counting = asyncio.Lock()
        self.count_at = float("-inf")
        """When to count again."""


class _Customer:
    """The counts of a customer, as far as this hub knows."""

    def __init__(self) -> None:
        self.jobs, self.deliveries = _Count(), _Count()


class Quotas:
    """The quotas of customers.

    The store counts live jobs at most once a second, and later submits at this hub are added: with several hubs, a
    customer may exceed the quota by one second's submits. Messages of webhooks are counted separately: those that wait,
    and those that live jobs are expected to make for the customer's webhooks. What follows from an admitted job is
    never refused, so the submit is. A customer with a dead receiver switches it off, and can submit again.
    """

    def __init__(self, app: App, options: HubOptions) -> None:
        self._app, self._options = app, options
        self._customers: dict[str, _Customer] = {}

    async def admit(self, caller: Caller, task: str, priority: int) -> None:
        """Check that the caller's customer may have this job as well; a caller without a customer may.

        :raises Problem: 403, its priority is too high; 429, there are too many
        """
        if caller.customer is not None:
            self.urgent(caller, priority)
            await self.live(caller, task=task)

    async def admit_messages(self, caller: Caller, task: str, queue: str, targets: Sequence[Target] = ()) -> None:
        """Check that the caller's customer may have the messages of an admitted job of this task in this queue;
        ``targets``: the receivers that the job notifies already, or names.

        :raises Problem: 429
        """
        if caller.customer is not None and task != TASK:  # messages cause no messages
            ahead = await self._app.session.writer.inserts.webhooks.messages_of(caller.customer, task, queue, targets)
            try:
                await self.live(caller, ahead, task=TASK)
            except Problem:
                self._of(caller.customer).jobs.live -= 1  # it will not be stored
                raise

    def urgent(self, caller: Caller, priority: int) -> None:
        """Check that a job of the caller's customer may have this priority.

        :raises Problem: 403
        """
        most = self._options.customer_priority
        if caller.customer is not None and priority > most:
            detail = f"jobs of a customer have a priority of at most {most}, not {priority}"
            faults = [Fault("priority", detail)]
            raise Problem(403, "forbidden", "This is not for this key", detail, faults=faults)

    def _of(self, customer: str) -> _Customer:
        return self._customers.setdefault(customer, _Customer())

    async def revive(self, caller: Caller, verb: Verb, filter: Filters, count: int) -> None:
        """Check that the caller's customer may have this action, which makes so many jobs live again.

        :raises Problem: 429
        """
        if caller.customer is not None:
            named = filter.get("task") or ()
            tasks = {named} if isinstance(named, str) else set(named)

            async def tried(of: Sequence[str]) -> int:
                return await self._app.jobs.where(**cast("Filters", {**filter, "task": of})).preview(verb) if of else 0

            deliveries = await tried([TASK] if not tasks or TASK in tasks else [])

            async def count_of(of: tuple[str, ...]) -> int:
                both = sorted(tasks.intersection(of) if tasks else of)
                if not of or (tasks and tasks.issubset(of)):
                    return count - deliveries
                return await tried(both)

            await self.live(caller, count - deliveries)
            ahead = await self._ahead(caller.customer, count_of, new=verb is Verb.RERUN)
            try:
                await self.live(caller, deliveries + ahead, task=TASK)
            except Problem:
                self._of(caller.customer).jobs.live -= count - deliveries
                raise

    async def live(self, caller: Caller, more: int = 1, *, task: str | None = None) -> None:
        """Check that the caller's customer may have so many more live jobs of this task.

        :raises Problem: 429
        """
        messages, customer, clock = task == TASK, caller.customer, self._app.host.clock
        most = self._options.customer_messages if messages else self._options.customer_jobs
        if customer is None or most is None or more <= 0:
            return
        has = self._of(customer).deliveries if messages else self._of(customer).jobs
        if clock.monotonic() >= has.count_at:
            async with has.counting:
                if (begun := clock.monotonic()) >= has.count_at:  # no other call has counted while this one waited
                    has.live = await self._count(customer, messages=messages)
                    took = clock.monotonic() - begun
                    has.count_at = begun + took + max(_COUNT_SECONDS, 20 * took)
        if has.live + more > most:
            what = "messages of webhooks that wait or are to come" if messages else "jobs that have not ended"
            detail = f"a customer may have {most} {what}; there are {has.live}, and this would be {more} more"
            raise _too_many(f"{detail}: {_OF_MESSAGES if messages else _OF_JOBS}", 5)
        has.live += more

    async def _count(self, customer: str, *, messages: bool) -> int:
        """Return the customer's live jobs without deliveries; ``messages``: deliveries, and expected ones."""
        deliveries = await self._app.jobs.count(customer=customer, status=sorted(LIVE), task=TASK)

        async def count_of(tasks: tuple[str, ...]) -> int:
            if tasks:
                return await self._app.jobs.count(customer=customer, status=sorted(LIVE), task=tasks)
            return max(0, await self._app.jobs.count(customer=customer, status=sorted(LIVE)) - deliveries)

        return deliveries + await self._ahead(customer, count_of) if messages else await count_of(())

    async def _ahead(
        self, customer: str, count_of: Callable[[tuple[str, ...]], Awaitable[int]], *, new: bool = False
    ) -> int:
        """Return how many messages are expected of jobs; ``count_of`` counts the jobs of some tasks; none: of all."""
        counts, ahead = dict[tuple[str, ...], int](), 0
        for tasks, each in await self._app.session.writer.inserts.webhooks.expected_messages(customer, new=new):
            if tasks not in counts:
                counts[tasks] = await count_of(tasks)
            ahead += each * counts[tasks]
        return ahead


def _too_many(detail: str, wait: int) -> Problem:
    return Problem(429, "too-many", "Too many", detail, headers={"Retry-After": str(max(wait, 1))})
